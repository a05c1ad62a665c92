// See progress_note.h.
#include "comm/failure/progress_note.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "base/check.h"
#include "base/text.h"
#include "comm/failure/blame.h"

namespace shoal {

namespace {

constexpr uint64_t kShortChain = 64, kLongChain = 1024;

std::string described(const LinkNote& link, const IssuedCollective& collective) {
  return fmt::format("{} ({}{}#{})", collective.subject, link.channel, link.channel.empty() ? "" : " ",
                     collective.sequence);
}

// "rank 1", "ranks 1 and 3".
std::string ranks_named(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

double in_seconds(Timeout timeout) { return std::chrono::duration<double>(timeout).count(); }

const LinkNote* note_of(const std::map<int, HeardRank>& heard, int rank, uint64_t link) {
  const auto found = heard.find(rank);
  if (found == heard.end() || !found->second.note) return nullptr;
  return found->second.note->find(link);
}

// Where a rank was last on the link: ", last at gather of block.2 (weights #41)".
std::string last_place(const std::map<int, HeardRank>& heard, int rank, uint64_t link) {
  const LinkNote* note = note_of(heard, rank, link);
  if (note == nullptr || note->recent.empty()) return "";
  return ", last at " + described(*note, note->recent.back());
}

bool is_silent(const std::map<int, HeardRank>& heard, int rank, Timeout longest) {
  const auto found = heard.find(rank);
  return found != heard.end() && found->second.note && found->second.silent >= longest;
}

// The ranks of the link that have not given it to their streams, of those that are heard of.
std::vector<int> missing_at(const std::map<int, HeardRank>& heard, const std::vector<int>& members, uint64_t link,
                            uint64_t sequence) {
  std::vector<int> missing;
  for (const int rank : members) {
    const LinkNote* note = note_of(heard, rank, link);
    if (note != nullptr && note->newest() < sequence) missing.push_back(rank);
  }
  return missing;
}

// Names are the user's: one with line ends must not make lines.
std::string on_one_line(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return name;
}

}  // namespace

void LinkNote::issue(const IssuedCollective& collective) {
  recent.push_back(collective);
  if (recent.size() > kRecent) recent.pop_front();
  chain_ = hash_text(fmt::format("{} {}", collective.sequence, collective.mark), chain_ + 1);
  if (collective.sequence % kShortChain == 0) short_chain = {collective.sequence, chain_};
  if (collective.sequence % kLongChain == 0) long_chain = {collective.sequence, chain_};
}

const IssuedCollective* LinkNote::find(uint64_t sequence) const {
  for (const IssuedCollective& collective : recent) {
    if (collective.sequence == sequence) return &collective;
  }
  return nullptr;
}

const LinkNote* ProgressNote::find(uint64_t link) const {
  for (const LinkNote& note : links) {
    if (note.link == link) return &note;
  }
  return nullptr;
}

// Text := beat, then for each link a line of numbers, one with the channel, and one a collective; all lines begin with
// what they are.
std::string to_text(const ProgressNote& note) {
  std::string text = fmt::format("beat {}\n", note.beat);
  for (const LinkNote& link : note.links) {
    text +=
        fmt::format("link {} {} {} {} {} {} {} {}\n", link.link, link.under_way, link.begun ? 1 : 0, link.left ? 1 : 0,
                    link.short_chain.sequence, link.short_chain.mark, link.long_chain.sequence, link.long_chain.mark);
    text += fmt::format("channel {}\n", on_one_line(link.channel));
    for (const IssuedCollective& collective : link.recent) {
      text += fmt::format("issued {} {} {}\n", collective.sequence, collective.mark, on_one_line(collective.subject));
    }
  }
  return text;
}

ProgressNote progress_note_from_text(const std::string& text) {
  ProgressNote note;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    if (what == "beat") {
      words >> note.beat;
    } else if (what == "link") {
      LinkNote& link = note.links.emplace_back();
      words >> link.link >> link.under_way >> link.begun >> link.left >> link.short_chain.sequence >>
          link.short_chain.mark >> link.long_chain.sequence >> link.long_chain.mark;
    } else {
      SHOAL_CHECK(!note.links.empty(), "not a note: {}", text);
      LinkNote& link = note.links.back();
      if (what == "channel") {
        link.channel = line.size() > 8 ? line.substr(8) : "";
        continue;
      }
      IssuedCollective& collective = link.recent.emplace_back();
      words >> collective.sequence >> collective.mark;
      words.ignore(1);
      std::getline(words, collective.subject);
    }
  }
  return note;
}

std::string cause_of_other_path(const StuckCollective& stuck, const std::map<int, HeardRank>& heard) {
  // By number, then by mark, who brought it. The number at which ranks part is the first where there are two marks.
  std::map<uint64_t, std::map<uint64_t, std::vector<int>>> marks;
  const auto each_note = [&](const std::function<void(int, const LinkNote&)>& look) {
    for (const int rank : stuck.members) {
      if (rank == stuck.rank) {
        look(rank, stuck.own);
      } else if (const LinkNote* note = note_of(heard, rank, stuck.own.link)) {
        look(rank, *note);
      }
    }
  };
  each_note([&](int rank, const LinkNote& note) {
    for (const IssuedCollective& collective : note.recent) {
      marks[collective.sequence][collective.mark].push_back(rank);
    }
  });
  const auto to_blame = [&](const std::map<uint64_t, std::vector<int>>& sides) {
    const std::vector<int>* fewest = nullptr;
    for (const auto& [mark, ranks] : sides) {
      const bool is_own = std::find(ranks.begin(), ranks.end(), stuck.rank) != ranks.end();
      const bool fewer = fewest == nullptr || ranks.size() < fewest->size();
      const bool as_many = fewest != nullptr && ranks.size() == fewest->size();
      const bool own_stands =
          fewest != nullptr && std::find(fewest->begin(), fewest->end(), stuck.rank) != fewest->end();
      if (fewer || (as_many && own_stands && !is_own)) fewest = &ranks;
    }
    return *fewest;
  };
  for (const auto& [sequence, sides] : marks) {
    if (sides.size() < 2) continue;
    const std::vector<int> ranks = to_blame(sides);
    const LinkNote* note = ranks[0] == stuck.rank ? &stuck.own : note_of(heard, ranks[0], stuck.own.link);
    const IssuedCollective& theirs = *note->find(sequence);
    for (const int other : stuck.members) {
      const LinkNote* others = other == stuck.rank ? &stuck.own : note_of(heard, other, stuck.own.link);
      const IssuedCollective* ours = others == nullptr ? nullptr : others->find(sequence);
      if (ours == nullptr || ours->mark == theirs.mark) continue;
      if (ours->subject != theirs.subject) {
        return fmt::format(
            "{} came to {} where rank {} came to {}: the ranks run different units or models. Make every rank run the "
            "same units in the same order.",
            ranks_named(ranks), described(*note, theirs), other, ours->subject);
      }
      return fmt::format(
          "{} and rank {} bring different bytes to {}: the ranks have different models or configs. Start every rank "
          "with the same model and config.",
          ranks_named(ranks), other, described(*note, theirs));
    }
  }
  for (const auto chain : {&LinkNote::short_chain, &LinkNote::long_chain}) {
    std::map<uint64_t, std::map<uint64_t, std::vector<int>>> chains;
    each_note([&](int rank, const LinkNote& note) {
      if ((note.*chain).sequence > 0) chains[(note.*chain).sequence][(note.*chain).mark].push_back(rank);
    });
    for (const auto& [sequence, sides] : chains) {
      if (sides.size() < 2) continue;
      return fmt::format(
          "{} went another way than the others at {}{}#{} or before: the ranks run different units or models. Make "
          "every rank run the same units in the same order.",
          ranks_named(to_blame(sides)), stuck.own.channel, stuck.own.channel.empty() ? "" : " ", sequence);
    }
  }
  return "";
}

std::string cause_of_progress(const StuckCollective& stuck, const std::map<int, HeardRank>& heard, Timeout timeout,
                              Timeout longest_silence) {
  if (std::string other = cause_of_other_path(stuck, heard); !other.empty()) return other;
  const uint64_t link = stuck.own.link;
  std::vector<int> others;
  for (const int rank : stuck.members) {
    if (rank != stuck.rank) others.push_back(rank);
  }
  const std::vector<int> missing = missing_at(heard, others, link, stuck.sequence);
  for (const int rank : missing) {
    if (const LinkNote* note = note_of(heard, rank, link); note->left) {
      return fmt::format(
          "rank {} left{}: it destroyed its group and will not come. Make every rank run the same number of steps.",
          rank, last_place(heard, rank, link));
    }
  }
  const auto seconds = in_seconds(timeout);
  if (!missing.empty()) {
    // One that waits in a collective of another link is held up by who is missing there.
    const auto waits_for = [&](int rank) {
      std::vector<int> found;
      const auto known = heard.find(rank);
      if (known == heard.end() || !known->second.note || is_silent(heard, rank, longest_silence)) return found;
      for (const LinkNote& note : known->second.note->links) {
        if (note.under_way == 0 || !note.begun) continue;
        std::vector<int> members;
        for (const auto& [peer, about] : heard) members.push_back(peer);
        for (const int late : missing_at(heard, members, note.link, note.under_way)) {
          if (late != rank) found.push_back(late);
        }
      }
      return found;
    };
    const std::vector<int> ends = ends_of_waits(missing, waits_for);
    const bool chained = ends != missing;
    std::string text = fmt::format("{} did not arrive within {} s", ranks_named(missing), seconds);
    if (!chained) text += last_place(heard, missing[0], link);
    if (chained) text += ", held up by " + ranks_named(ends);
    std::vector<int> silent;
    for (const int rank : ends) {
      if (is_silent(heard, rank, longest_silence)) silent.push_back(rank);
    }
    if (!silent.empty()) {
      text += fmt::format("; nothing was heard of {} for {:.1f} s: stopped, or cut off", ranks_named(silent),
                          in_seconds(heard.at(silent[0]).silent));
    }
    return text + fmt::format(". Look at what {} does there, or raise shoal.timeout_seconds.", ranks_named(ends));
  }
  std::vector<int> silent, behind;
  for (const int rank : others) {
    const LinkNote* note = note_of(heard, rank, link);
    if (note == nullptr) continue;
    if (is_silent(heard, rank, longest_silence)) silent.push_back(rank);
    const bool waits = note->under_way != 0 &&
                       (note->under_way < stuck.sequence || (note->under_way == stuck.sequence && !note->begun));
    if (waits) behind.push_back(rank);
  }
  if (!silent.empty()) {
    return fmt::format(
        "{} came to it and hangs: nothing was heard of it for {:.1f} s. It is stopped, or cut off. Look at its own "
        "output.",
        ranks_named(silent), in_seconds(heard.at(silent[0]).silent));
  }
  if (!behind.empty()) {
    return fmt::format(
        "the GPU of {} has not begun it within {} s: it is behind other work of that rank. Look at what it computes, "
        "or "
        "raise shoal.timeout_seconds.",
        ranks_named(behind), seconds);
  }
  // One that stopped before its first word about the link: nobody who lives is that slow to tell. (Where several have
  // said nothing, and all of them, it may be this rank that does not hear.)
  std::vector<int> unheard;
  for (const int rank : others) {
    if (note_of(heard, rank, link) == nullptr) unheard.push_back(rank);
  }
  if (unheard.empty() || (unheard == others && others.size() > 1)) return "";
  return fmt::format(
      "{0} did not arrive within {1} s; nothing was heard of {0} since the channel was opened: stopped, or cut off. "
      "Look at what {0} does there, or raise shoal.timeout_seconds.",
      ranks_named(unheard), seconds);
}

}  // namespace shoal
