// Gradients that wait for the update in host memory, unit by unit, on a rank that computes on a GPU. A unit's gradients
// are collected or reduced in a berth, which is memory of the queue, and then go home; where a later micro-step adds to
// them, they come back to a berth first.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device/queue.h"
#include "shoal/group.h"

namespace shoal {

class GradientHomes {
 public:
  // Of each unit the bytes that wait in host memory; it is pinned in the background. Berths are memory of the channel,
  // whose collectives reduce what is in them. Channel and queue outlive this object.
  GradientHomes(const std::vector<size_t>& unit_nbytes, int berths, Group& channel, Queue& queue,
                std::shared_ptr<Ledger> ledger);
  ~GradientHomes();
  GradientHomes(const GradientHomes&) = delete;
  GradientHomes& operator=(const GradientHomes&) = delete;

  // A micro-step begins; with `brings` what the earlier ones left comes back, in the order in which units came.
  void begin_micro_step(bool brings);
  // The unit's place on the device, from the first call in a micro-step until leave(). What the queue is given later
  // finds there what earlier micro-steps left, where that is brought.
  std::byte* berth(int unit);
  // Its memory, meanwhile.
  const std::shared_ptr<Slab>& berth_slab(int unit) const {
    return berths_[static_cast<size_t>(units_[static_cast<size_t>(unit)].berth)].slab;
  }
  // A run of the unit's bytes goes home, as the queue's work so far leaves it.
  void send_home(int unit, size_t offset, size_t nbytes);
  // The unit is through in this micro-step; what was not sent home, these collectives of the channel bring there.
  void leave(int unit, std::vector<Handle> collectives);

  // Where gradients wait for the update, for whoever has waited for those collectives.
  std::byte* home(int unit) const { return homes_->data() + units_[static_cast<size_t>(unit)].offset; }
  // A place on the device for any unit's gradients, between micro-steps.
  std::byte* free_berth();

  // How long the queue stood still for bytes that were not there, where it has gone on since the last call.
  double newly_held_seconds() { return copy_streams_->newly_held_seconds(); }
  // Why the memory could not be pinned; "" where it was.
  const std::string& unpinned_because();

 private:
  struct Unit {
    size_t offset = 0, nbytes = 0;  // at home
    int berth = -1;                 // while it has one
    bool came = false;              // in this micro-step: it has one, or had
    bool coming = false;            // its bytes, and the queue does not wait for them yet
    std::vector<Handle> departure;  // the collectives that last brought it home
    bool sent = false;              // or some of it
    bool awaited = true;            // by the queue: both
  };
  struct Berth {
    std::shared_ptr<Slab> slab;
    int unit = -1;      // the last that had it; -1: none
    bool held = false;  // by it
    uint64_t turn = 0;  // when it was left
  };

  void take_berth(int unit);
  // Holds back the queue until the unit, which has left, is home.
  void await_home(int unit);
  void give_back_berths();
  // Brings the next of the order, if there is a berth that nobody holds.
  void bring_next();
  void finish_pinning();

  Group& channel_;
  Queue& queue_;
  std::shared_ptr<Ledger> ledger_;
  std::vector<Unit> units_;
  std::shared_ptr<Slab> homes_;
  size_t berth_nbytes_ = 0;
  size_t wanted_berths_;
  size_t most_held_ = 0;  // at one time in this micro-step
  std::vector<Berth> berths_;
  bool brings_ = false;
  std::vector<int> order_;       // of units, as they came in this micro-step
  std::vector<int> last_order_;  // in the one before
  size_t next_ = 0;              // of it: brought next
  uint64_t turn_ = 0;
  std::unique_ptr<CopyStreams> copy_streams_;  // a chunk is a unit
  std::thread pinning_;
  std::string unpinned_because_;
};

}  // namespace shoal
