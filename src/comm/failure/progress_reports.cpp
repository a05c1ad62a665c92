// See progress_reports.h.
#include "comm/failure/progress_reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "comm/failure/failure.h"

namespace shoal {

namespace {

constexpr auto kShortestBeat = std::chrono::milliseconds(100), kLongestBeat = std::chrono::milliseconds(2000);
constexpr int kBeatsOfSilence = 8;  // a rank that lives misses so many on no machine, however busy
constexpr auto kShortestSilence = std::chrono::milliseconds(2000);
constexpr auto kReadLimit = std::chrono::milliseconds(2000);
constexpr size_t kMostLinksLeft = 8;  // of those that are destroyed, still told of

std::string progress_key(int rank) { return fmt::format("progress/{}", rank); }

}  // namespace

ProgressReports::Link::Link(uint64_t number, std::string channel, std::vector<int> members)
    : members_(std::move(members)) {
  note_.link = number;
  note_.channel = std::move(channel);
}

void ProgressReports::Link::issue(const IssuedCollective& collective) {
  const std::lock_guard lock(mutex_);
  note_.issue(collective);
}

void ProgressReports::Link::set_under_way(uint64_t sequence, bool begun) {
  const std::lock_guard lock(mutex_);
  note_.under_way = sequence;
  note_.begun = begun;
}

void ProgressReports::Link::leave() {
  const std::lock_guard lock(mutex_);
  note_.left = true;
  note_.under_way = 0;
}

LinkNote ProgressReports::Link::note() const {
  const std::lock_guard lock(mutex_);
  return note_;
}

ProgressReports::ProgressReports(Options options)
    : options_(std::move(options)),
      period_(std::clamp<std::chrono::milliseconds>(options_.timeout / 20, kShortestBeat, kLongestBeat)) {
  thread_ = std::thread([this] { run(); });
}

ProgressReports::~ProgressReports() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  stopping_.notify_all();
  thread_.join();
}

std::shared_ptr<ProgressReports::Link> ProgressReports::open(uint64_t number, const std::string& channel,
                                                             const std::vector<int>& members) {
  auto link = std::make_shared<Link>(number, channel, members);
  const std::lock_guard lock(mutex_);
  links_.push_back(link);
  // The last that are gone stay: a peer may still wait for this rank on one of them.
  const auto is_left = [](const std::shared_ptr<Link>& each) { return each->note().left; };
  auto left = std::count_if(links_.begin(), links_.end(), is_left);
  std::erase_if(links_, [&](const std::shared_ptr<Link>& each) {
    return is_left(each) && left-- > static_cast<std::ptrdiff_t>(kMostLinksLeft);
  });
  return link;
}

std::vector<std::shared_ptr<ProgressReports::Link>> ProgressReports::links() const {
  const std::lock_guard lock(mutex_);
  return links_;
}

void ProgressReports::run() {
  for (bool stopping = false; !stopping;) {
    {
      std::unique_lock lock(mutex_);
      stopping = stopping_.wait_for(lock, period_, [this] { return stopped_; });
    }
    try {
      report();
      if (!stopping) look_at_neighbours();
    } catch (const StoreSilent&) {
      const std::lock_guard lock(mutex_);
      if (!store_silent_since_) store_silent_since_ = std::chrono::steady_clock::now();
    } catch (const Error&) {
      return;                          // the store is gone, and with whom, others find out
    } catch (const std::exception&) {  // what is no note, or no memory: this rank goes on saying its own
    }
  }
}

void ProgressReports::report() {
  ProgressNote note;
  for (const auto& link : links()) note.links.push_back(link->note());
  note.beat = ++beat_;
  const std::lock_guard lock(store_mutex_);
  options_.store->set(progress_key(options_.rank), to_text(note));
  const std::lock_guard known(mutex_);
  store_silent_since_.reset();
}

void ProgressReports::read(const std::vector<int>& ranks) {
  const std::lock_guard lock(store_mutex_);
  for (const int rank : ranks) {
    if (rank == options_.rank) continue;
    const std::optional<std::string> text = options_.store->get(progress_key(rank), kReadLimit);
    if (!text) continue;
    ProgressNote note = progress_note_from_text(*text);
    const std::lock_guard known(mutex_);
    Heard& heard = heard_[rank];
    if (!heard.note || heard.note->beat != note.beat) heard.since = std::chrono::steady_clock::now();
    heard.note = std::move(note);
  }
}

void ProgressReports::look_at_neighbours() {
  std::set<int> asked;
  for (const auto& link : links()) {
    const LinkNote note = link->note();
    if (note.left || link->members().size() < 2) continue;
    const std::vector<int>& members = link->members();
    const auto own = std::find(members.begin(), members.end(), options_.rank);
    // Most collectives are over by the next look: who brought what is asked of all about one that is not.
    uint64_t& seen = seen_under_way_[note.link];
    if (note.under_way != 0 && note.begun && note.under_way == seen) asked.insert(members.begin(), members.end());
    seen = note.under_way;
    asked.insert(own == members.begin() ? members.back() : *(own - 1));
  }
  read({asked.begin(), asked.end()});
  const std::map<int, HeardRank> heard = heard_now();
  for (const auto& link : links()) {
    const LinkNote note = link->note();
    if (note.left || note.recent.empty()) continue;
    const std::string cause = cause_of_other_path({options_.rank, link->members(), note, 0}, heard);
    if (cause.empty() || !options_.other_path || told_other_path_) continue;
    told_other_path_ = true;
    const IssuedCollective& last = note.recent.back();
    options_.other_path(
        fmt::format("{} ({}{}#{})", last.subject, note.channel, note.channel.empty() ? "" : " ", last.sequence), cause);
  }
}

std::map<int, HeardRank> ProgressReports::heard_now() const {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  std::map<int, HeardRank> heard;
  for (const auto& [rank, about] : heard_) {
    heard[rank] = {about.note, std::chrono::duration_cast<Timeout>(now - about.since)};
  }
  return heard;
}

std::string ProgressReports::cause(const Link& link, uint64_t sequence) {
  std::optional<std::chrono::steady_clock::time_point> silent_since;
  try {
    read(link.members());
  } catch (const StoreSilent&) {
    const std::lock_guard lock(mutex_);
    if (!store_silent_since_) store_silent_since_ = std::chrono::steady_clock::now() - kReadLimit;
  } catch (const Error&) {
    return "";  // the store is gone
  }
  {
    const std::lock_guard lock(mutex_);
    silent_since = store_silent_since_;
  }
  const auto now = std::chrono::steady_clock::now();
  if (silent_since) {
    return cause_store_silent(options_.store_server, std::chrono::duration_cast<Timeout>(now - *silent_since));
  }
  const Timeout longest = std::max<Timeout>(kShortestSilence, period_ * kBeatsOfSilence);
  return cause_of_progress({options_.rank, link.members(), link.note(), sequence}, heard_now(), options_.timeout,
                           std::min(longest, std::max<Timeout>(options_.timeout / 2, Timeout(1))));
}

}  // namespace shoal
