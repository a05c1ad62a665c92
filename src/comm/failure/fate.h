// What a world of ranks knows of its own end, for those who wait for something else than a collective of the hosts: the
// watch over collectives on GPUs. Asked from any thread; waits for no rank.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "comm/failure/failure.h"
#include "shoal/group.h"

namespace shoal {

class ProgressReports;

class Fate {
 public:
  virtual ~Fate() = default;
  // How long a rank waits for the others.
  virtual Timeout timeout() const = 0;
  // What a rank has written down, this one or another.
  virtual std::optional<Failure> failure() = 0;
  // A rank that is gone, said as a cause; empty when all live. A rank may go when it has done its part, and that is no
  // failure yet: ask when something is overdue.
  virtual std::string dead_peer() = 0;
  // Writes the failure down for every rank and channel, unless one is there already, and wakes whoever waits.
  virtual void fail(const Failure& failure) = 0;
  // How far the others are with collectives on GPUs; null where that is not told. Lives as long as the world.
  virtual ProgressReports* progress() { return nullptr; }
};

// How long after the connections of a process are seen to be cut its end may come to be known.
inline constexpr Timeout kDeathPatience = std::chrono::seconds(2);

// What lies behind an error that names nobody: what a rank has written down, or `own` with a rank that is gone as its
// cause. Both may be known a moment after the error; asks for as long as the patience. Nothing: neither is.
std::optional<Failure> what_lies_behind(Fate& fate, const Failure& own, Timeout patience = kDeathPatience);

}  // namespace shoal
