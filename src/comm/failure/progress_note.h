// How far a rank is with its collectives on GPUs, as it tells the others beside NCCL, which says nothing; and whom to
// blame, by what all have told, for one that does not end. Pure: progress_reports.h carries the notes.
//
// A collective has a number on its link (NCCL's communicator), counted alike by all of its ranks, and a mark, a hash of
// what it is: ranks whose marks differ at one number are on different paths.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shoal/group.h"

namespace shoal {

struct IssuedCollective {
  uint64_t sequence = 0;
  uint64_t mark = 0;
  std::string subject;  // "gather of block.3"
  bool operator==(const IssuedCollective&) const = default;
};

// Of one link.
struct LinkNote {
  uint64_t link = 0;                    // the same number on all of its ranks, and of no other link
  std::string channel;                  // for messages
  std::deque<IssuedCollective> recent;  // the last that were given to the stream, the newest at the end
  // The marks of all up to a number, in one: the last number that 64 divides, and the last that 1024 does.
  struct Chain {
    uint64_t sequence = 0, mark = 0;
    bool operator==(const Chain&) const = default;
  };
  Chain short_chain, long_chain;
  uint64_t under_way = 0;  // the oldest that is not over; 0: none
  bool begun = false;      // that one, on the rank's GPU
  bool left = false;       // the rank has destroyed the link

  static constexpr size_t kRecent = 24;
  void issue(const IssuedCollective& collective);
  uint64_t newest() const { return recent.empty() ? 0 : recent.back().sequence; }
  const IssuedCollective* find(uint64_t sequence) const;
  bool operator==(const LinkNote&) const = default;

 private:
  uint64_t chain_ = 0;
};

struct ProgressNote {
  uint64_t beat = 0;  // grows at each report: of a rank that lives, whatever it waits for
  std::vector<LinkNote> links;

  const LinkNote* find(uint64_t link) const;
};

std::string to_text(const ProgressNote& note);
ProgressNote progress_note_from_text(const std::string& text);

// What is known of a rank: its last note, if any came, and for how long no newer one has.
struct HeardRank {
  std::optional<ProgressNote> note;
  Timeout silent{0};
};

// The collective that does not end, as one of its ranks sees it.
struct StuckCollective {
  int rank = 0;              // who asks
  std::vector<int> members;  // of the link, by their numbers in the world
  LinkNote own;
  uint64_t sequence = 0;
};

// A rank that went another way on the link, said as a cause; empty where none is known to have. Where ranks disagree
// the fewer are to blame, or, of as many, the others.
std::string cause_of_other_path(const StuckCollective& stuck, const std::map<int, HeardRank>& heard);
// Who holds the collective up, said as a cause; empty where nobody is known to.
std::string cause_of_progress(const StuckCollective& stuck, const std::map<int, HeardRank>& heard, Timeout timeout,
                              Timeout longest_silence);

}  // namespace shoal
