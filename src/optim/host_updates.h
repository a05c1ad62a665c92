// Chunks of states that the host updates in place of a device, or of the thread that computes in host memory, behind
// its back: gradients and weights of a chunk come to the host, host threads update it, and the new weights go home,
// chunk after chunk, while the device works on. Gradients or weights that are in host memory are used where they are.
//
// [Note: the host updates beside the device]
// A round is one step's update of all these chunks, or of some that follow each other. A thread of this object learns
// first whether the step is taken, which the device decides, and with what; so whoever began the round waits for
// nothing. Chunks come through a few pieces of pinned memory: two are on their way while one is updated. Whoever needs
// a chunk's weights finishes it: the calling thread waits until the host has updated it, and the queue until the
// weights are home. Gradients, weights and states are this object's from begin() until then.
//
// [Note: updates ahead of the decision]
// A part whose gradients are whole may be updated before its step is decided, with the constants that the step has if
// nothing overflows and nothing is clipped. What comes of it lies beside what there is: states in the chunk's spare
// place, weights in memory of their own. The round that follows takes the part over if its step is taken with just
// these constants: the two places of the states change their meaning, and the weights go home. Else the part is updated
// as if nothing had been. So what is assumed never shows in a bit, only in time. A rank's own thread comes to the end
// of a backward long before its device does, so parts are updated ahead after begin() too, until the decision is there.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "device/queue.h"
#include "optim/group_steps.h"
#include "optim/state_memory.h"

namespace shoal {

class HostUpdates {
 public:
  // Weights or gradients of a chunk's elements: in host memory, where they stay, or in the queue's.
  template <typename Byte>
  struct Place {
    Byte* data = nullptr;
    size_t nbytes = 0;
    bool in_host = false;

    size_t moved_nbytes() const { return in_host ? 0 : nbytes; }
  };
  struct Part {
    int chunk = 0;  // of the states
    Place<std::byte> weight;
    Place<const std::byte> grad;
  };
  // Where the update of a part finds it in host memory.
  struct Elements {
    std::byte* states = nullptr;
    std::byte* weight = nullptr;
    const std::byte* grad = nullptr;
  };
  using List = std::function<std::unique_ptr<UpdateList>(int part, const Elements& elements)>;
  // The constants of the step; nothing where it is skipped. Called by another thread, and may wait.
  using Decision = std::function<std::optional<GroupSteps>()>;

  // All of these outlive this object; `host` updates.
  HostUpdates(Queue& queue, Queue& host, StateMemory& states, std::shared_ptr<Ledger> ledger);
  ~HostUpdates();
  HostUpdates(const HostUpdates&) = delete;
  HostUpdates& operator=(const HostUpdates&) = delete;

  // Between rounds: takes memory for parts of which up to so many bytes move; parts that need more take more. The parts
  // that there are, are gone then: they have places in it.
  void reserve(size_t weight_nbytes, size_t grad_nbytes);
  // Before there are parts: takes memory for the weights of all parts whose chunks have a spare place, which may then
  // be updated ahead.
  void reserve_ahead(size_t weight_nbytes);
  // Between rounds: what there is to update, in the order in which it is finished.
  void set_parts(std::vector<Part> parts, const List& list);
  int parts() const { return static_cast<int>(parts_.size()); }

  // Between rounds: updates a part ahead of the next round, if it may be, on what the queue's work so far makes of it.
  // `await` returns, in another thread, when its gradients are whole. `assumed` is asked once before a round, and must
  // be that of the round's step in every call before it.
  void update_ahead(int part, const Decision& assumed, std::function<void()> await = {});
  // What was updated ahead is not what the next step is to be made from: drops it, when nothing of it is under way.
  void forget_ahead();
  // Elements that were updated ahead so far, and those of them that rounds took over.
  struct Ahead {
    int64_t updated_numel = 0, taken_numel = 0;
  };
  Ahead ahead();

  // Begins a round of parts [first, last) on what the queue's work so far makes of them. `is_known` says whether the
  // decision would wait; nothing: it would not.
  void begin(int first, int last, Decision decision, std::function<bool()> is_known = {});
  // The next part of the round: what the queue is given later finds its new weights. Throws what went wrong.
  void finish(int part);
  bool in_round() const { return next_ < last_; }
  // Ends the round, of which nobody needs the rest, when nothing of it is under way.
  void abandon();

  // How long the queue stood still for such weights, where it has gone on since the last call.
  double newly_held_seconds() { return copy_streams_ ? copy_streams_->newly_held_seconds() : 0; }

 private:
  struct Listed {
    Part part;
    int64_t numel = 0;
    // Of the part, by which of two places its states are in; there is one where its chunk has no spare.
    std::array<std::unique_ptr<UpdateList>, 2> lists;
    // Of the part ahead, from either place to the other.
    std::array<std::unique_ptr<UpdateList>, 2> lists_ahead;
    std::byte* weight_ahead = nullptr;  // null: it is not updated ahead
    size_t place = 0;
    bool is_ahead = false;
  };

  struct PartAhead {
    int part = 0;
    std::function<void()> await;  // nothing: its gradients are whole
  };

  static constexpr int kSlots = 4;
  std::byte* weight_slot(int part) const { return memory_->data() + static_cast<size_t>(part % kSlots) * slot_nbytes_; }
  std::byte* grad_slot(int part) const { return weight_slot(part) + grad_offset_; }
  void serve();
  bool is_decided() const;
  void run(int first, int last, const Decision& decision);
  void run_ahead(const PartAhead& ahead, const Decision& assumed);
  void bring(int part);
  void update(int part, const PlacedSteps& steps);
  void take_over(int part);
  void copy_in_host(std::byte* to, const std::byte* from, size_t nbytes);

  Queue& queue_;
  Queue& host_;
  StateMemory& states_;
  std::shared_ptr<Ledger> ledger_;
  std::vector<Listed> parts_;
  std::shared_ptr<Slab> memory_;  // pinned: kSlots times a part's weights and gradients
  size_t slot_nbytes_ = 0, grad_offset_ = 0;
  std::shared_ptr<Slab> weights_ahead_;  // pinned
  std::unique_ptr<CopyStreams> copy_streams_;
  int next_ = 0, last_ = 0;  // of the round: finished next, and one past its last

  // Between the threads.
  std::mutex mutex_;
  std::condition_variable changed_;
  Decision decision_;               // of a round that has not been seen
  std::function<bool()> is_known_;  // it
  int begin_ = 0, end_ = 0;         // of it
  std::deque<PartAhead> ahead_;     // parts that wait to be updated ahead of it
  Decision assumed_;                // for them
  Ahead counts_;
  int updated_ = 0;     // parts of the round before this one are updated, or will not be
  bool taken_ = false;  // the round's step is
  std::exception_ptr error_;
  bool busy_ = false;  // the thread, with a round or a part ahead
  bool stopped_ = false;
  std::optional<GroupSteps> assumed_steps_;  // what parts were updated ahead with; the thread's, while it is busy
  std::thread thread_;
};

}  // namespace shoal
