// See fetched_weights.h.
#include "optim/fetched_weights.h"

#include <algorithm>

#include "base/check.h"

namespace shoal {

FetchedWeights::FetchedWeights(Queue& queue, size_t slot_nbytes, const std::shared_ptr<Ledger>& ledger)
    : slot_nbytes_(slot_nbytes),
      memory_(queue.allocate(kFetchedSlots * slot_nbytes, ledger, MemoryKind::state_ring)),
      copy_streams_(queue.make_copy_streams(0)) {
  copy_streams_->log_stalls_as("host: weights");
  last_in_.fill(-1);
}

void FetchedWeights::clear() {
  pieces_.clear();
  next_ = 0;
}

int FetchedWeights::add(std::byte* home, size_t nbytes) {
  SHOAL_CHECK_LE(nbytes, slot_nbytes_);
  pieces_.push_back({home, nbytes});
  copy_streams_->make_room(static_cast<int>(pieces_.size()));
  return static_cast<int>(pieces_.size()) - 1;
}

std::byte* FetchedWeights::address(int piece) const {
  return memory_->data() + static_cast<size_t>(piece % kFetchedSlots) * slot_nbytes_;
}

void FetchedWeights::begin_step() {
  next_ = 0;
  copy_streams_->follow_queue();  // copies in wait for whoever wrote the homes on the queue
}

void FetchedWeights::begin_use(int piece, int last) {
  for (; next_ < std::min(piece + kFetchedSlots, last); ++next_) {
    int& last_in = last_in_[static_cast<size_t>(next_ % kFetchedSlots)];
    const Piece& brought = pieces_[static_cast<size_t>(next_)];
    // It waits until what was in the slot before has gone home, and that waited for its update.
    copy_streams_->copy_in(next_, address(next_), brought.home, brought.nbytes, /*after=*/last_in);
    last_in = next_;
  }
  copy_streams_->hold_queue(piece);  // the update waits for the copy in
}

void FetchedWeights::end_use(int piece) {
  const Piece& used = pieces_[static_cast<size_t>(piece)];
  copy_streams_->mark_used(piece);  // the copy out waits for the update
  copy_streams_->copy_out(piece, used.home, address(piece), used.nbytes);
}

// A gather, which follows the queue, waits for the copy out with it.
void FetchedWeights::hold_queue(int piece) { copy_streams_->hold_queue_out(piece); }

void FetchedWeights::wait(int piece) { copy_streams_->wait_out(piece); }

}  // namespace shoal
