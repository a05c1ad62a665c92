// Carries numbered chunks between host memory and a queue's, beside the queue's work.
//
// [Note: copies keep step with the work]
// Copies that all begin at once are in the way of what is needed sooner: each small copy of somebody else's, the next
// batch or a loss that is read, waits for the chunk that is under way, and the GPU with it. So orders are kept back,
// and pace(), called between the parts of a model, gives the copy streams a share of them, to begin when the queue has
// come there. The share is such that all are given out over as many calls as there were in the step before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device/copy_streams.h"

namespace shoal {

class PacedCopies {
 public:
  PacedCopies(std::unique_ptr<CopyStreams> streams, int chunks);
  // Drops what the copy streams have not been given and waits for what they have.
  ~PacedCopies();
  PacedCopies(const PacedCopies&) = delete;
  PacedCopies& operator=(const PacedCopies&) = delete;

  struct Copy {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    size_t nbytes = 0;
  };
  // In the background; the first copy waits for it. The memory outlives this object.
  void pin(std::byte* host, size_t nbytes);
  // Orders a copy for when chunk `after` is back from where this one comes to lie, if take_back() was ordered for it.
  void bring(int chunk, const Copy& copy, int after);
  // What the queue is given later finds the chunk's bytes where bring() puts them.
  void begin_use(int chunk);
  // The queue has no more work on the chunk; orders that its bytes go back after what it has.
  void take_back(int chunk, const Copy& copy);
  // Between parts of the queue's work: gives the copy streams their share. The queue will soon need what is ordered in,
  // but for the last `may_wait` orders: all of that goes, with what lies in its way; and if none may wait, all that
  // goes back too, for more is to come into its place.
  void pace(size_t may_wait = SIZE_MAX);
  // The calls of pace() since the last end_step() are as many as to expect until the next.
  void end_step();
  // Waits until everything that was ordered is through.
  void settle();

  struct Counters {
    uint64_t brought_nbytes = 0, taken_nbytes = 0;
    double held_seconds =
        0;  // the queue, for bytes that were not there, as far as it had come when the last round began
  };
  Counters counters() const { return counters_; }
  // See CopyStreams.
  void log_stalls_as(const std::string& what) { copy_streams_->log_stalls_as(what); }
  // Why the memory could not be pinned; "" where it was, or will be.
  const std::string& unpinned_because() const { return unpinned_because_; }

 private:
  struct Order {
    int chunk = 0;
    Copy copy;
    int after = -1;           // in: the chunk that was there before
    int64_t after_count = 0;  // in: so many orders out are given to their copy stream first
  };
  struct Lane {
    std::deque<Order> orders;
    int64_t ordered = 0;  // so far
    int64_t given = 0;    // to the copy stream
    int last = -1;        // chunk of the last order that was given
  };

  void give_next_in();
  void give_next_out();
  void finish_pinning();

  std::unique_ptr<CopyStreams> copy_streams_;
  Lane in_, out_;
  std::vector<int64_t> brings_, returns_;  // of each chunk: its last order's number
  bool step_ended_ = false;                // and no use has come since
  int64_t paces_ = 0;                      // in this step
  int64_t expected_paces_ = 0;             // as many as there were in the last
  std::thread pinning_;
  std::string unpinned_because_;
  Counters counters_;
};

}  // namespace shoal
