// Collectives that were given to a GPU's stream and are not known to be over: which is the oldest, and how long it has
// been under way. Decides only: what the GPU has done comes through probes, the time is passed in. Used by watchdog.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "shoal/group.h"

namespace shoal {

class Watch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // How far the GPU is with one collective. Both ask and do not wait; they throw what went wrong on the GPU.
  class Probe {
   public:
    virtual ~Probe() = default;
    virtual bool started() = 0;
    virtual bool finished() = 0;
  };

  explicit Watch(Timeout timeout) : timeout_(timeout) {}

  // In the order of the stream. `at` says which one it is: "gather of block.3 (weights #42)"; `sequence` is that
  // number.
  void add(std::string at, std::shared_ptr<Probe> probe, uint64_t sequence = 0);
  bool empty() const { return entries_.empty(); }

  struct Oldest {
    std::string at;
    uint64_t sequence = 0;
    // Since it was first seen to have begun; nothing while it waits behind other work of the stream, however long.
    std::optional<Timeout> under_way;
    bool late = false;  // longer than the timeout
  };
  // Drops what is over, and says how it stands with the oldest of the rest. When a probe throws, that is the oldest.
  std::optional<Oldest> look(Time now);
  // What the oldest is.
  const std::string& oldest() const { return entries_.front().at; }

 private:
  struct Entry {
    std::string at;
    std::shared_ptr<Probe> probe;  // shared with the carrier, which ends it
    uint64_t sequence = 0;
    std::optional<Time> began;
  };
  const Timeout timeout_;
  std::deque<Entry> entries_;
};

}  // namespace shoal
