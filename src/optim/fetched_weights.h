// Weights off a GPU that it updates: they come to its memory piece by piece, through a few slots, beside the queue's
// work, and go back when they are updated.
//
// [Note: updated weights go home behind the update]
// Pieces are numbered in the order of updates, and each step goes through all of them. While one is updated, those
// after it are on their way in and those before it on their way out. Whoever reads a home next, a gather or the disk,
// waits for the last piece that goes there. To wait at once would stop the queue for a bus that is busy with states; so
// an update runs one unit ahead of what is needed, and that last piece is mostly through when somebody asks.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "device/queue.h"
#include "plan/memory.h"

namespace shoal {

class FetchedWeights {
 public:
  // The queue outlives this object. No piece is larger than a slot.
  FetchedWeights(Queue& queue, size_t slot_nbytes, const std::shared_ptr<Ledger>& ledger);

  // Between steps: there are no pieces.
  void clear();
  // One more: its number, and its place in the queue's memory while it is used. The home stays where it is.
  int add(std::byte* home, size_t nbytes);
  std::byte* address(int piece) const;

  // Whatever the queue was given so far may have changed the homes.
  void begin_step();
  // What the queue is given later finds the piece in its place. Homes of pieces before `last` are as they should be.
  void begin_use(int piece, int last);
  // The queue has no more work on it than it was given so far: it goes home.
  void end_use(int piece);
  // What the queue is given later comes after the piece, and those before it, are home.
  void hold_queue(int piece);
  // The same for the calling thread.
  void wait(int piece);

  // How long the queue stood still for all this, where it has gone on since the last call.
  double newly_held_seconds() { return copy_streams_->newly_held_seconds(); }

 private:
  struct Piece {
    std::byte* home = nullptr;
    size_t nbytes = 0;
  };

  size_t slot_nbytes_;
  std::shared_ptr<Slab> memory_;
  std::unique_ptr<CopyStreams> copy_streams_;
  std::vector<Piece> pieces_;
  int next_ = 0;                              // piece that is brought next
  std::array<int, kFetchedSlots> last_in_{};  // piece that was in each slot last; -1: none
};

}  // namespace shoal
