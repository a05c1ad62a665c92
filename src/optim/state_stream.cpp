// See state_stream.h.
#include "optim/state_stream.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "shoal/error.h"

namespace shoal {

StateStream::StateStream(std::shared_ptr<Slab> host, std::vector<size_t> chunk_nbytes, size_t staging, Queue& queue,
                         std::shared_ptr<Ledger> ledger)
    : host_(std::move(host)),
      chunk_nbytes_(std::move(chunk_nbytes)),
      queue_(queue),
      ledger_(std::move(ledger)),
      ferry_(queue.make_wires(static_cast<int>(chunk_nbytes_.size())), static_cast<int>(chunk_nbytes_.size())) {
  size_t offset = 0;
  for (const size_t nbytes : chunk_nbytes_) {
    host_offsets_.push_back(offset);
    offset += nbytes;
  }
  SHOAL_CHECK_LE(offset, host_->nbytes());
  make_ring(shoal::ring_nbytes(chunk_nbytes_, staging));
  ferry_.pin(host_->data(), host_->nbytes());
}

void StateStream::make_ring(size_t nbytes) {
  ring_ = queue_.allocate(nbytes, ledger_, MemoryKind::state_ring);
  places_ = lay_ring(chunk_nbytes_, nbytes);
}

bool StateStream::grow(size_t staging) {
  SHOAL_CHECK(next_ % count() == 0, "the ring grows inside a round");
  const size_t nbytes = shoal::ring_nbytes(chunk_nbytes_, staging);
  if (nbytes <= ring_->nbytes()) return false;
  settle();
  brought_ = next_;
  const size_t before = ring_->nbytes();
  ring_.reset();  // the memory may not hold both
  try {
    make_ring(nbytes);
  } catch (const Error&) {  // somebody else was quicker; a larger ring was a wish
    make_ring(before);
  }
  return true;
}

void StateStream::pace() {
  if (next_ == round_end()) return ferry_.pace();
  // What is brought for the next round may wait.
  ferry_.pace(static_cast<size_t>(std::max<int64_t>(0, brought_ - round_end())));
}

// The ring holds no chunk twice, so nothing is brought further ahead than one round.
void StateStream::read_ahead() {
  for (;; ++brought_) {
    const int64_t chunk = brought_ % count();
    const RingPlace& place = places_[static_cast<size_t>(chunk)];
    const int64_t back = (chunk - place.after + count() - 1) % count() + 1;
    if (brought_ - back >= next_) return;  // who lies there has not been given back
    const bool first = brought_ < back;
    ferry_.bring(
        static_cast<int>(chunk),
        {memory(static_cast<int>(chunk)), host(static_cast<int>(chunk)), chunk_nbytes_[static_cast<size_t>(chunk)]},
        first ? -1 : place.after);
    settled_ = false;
  }
}

void StateStream::take(int chunk) {
  SHOAL_CHECK_EQ(next_ % count(), chunk);
  read_ahead();
  ferry_.begin_use(chunk);
}

void StateStream::give(int chunk) {
  SHOAL_CHECK_EQ(next_ % count(), chunk);
  ferry_.take_back(chunk, {host(chunk), memory(chunk), chunk_nbytes_[static_cast<size_t>(chunk)]});
  settled_ = false;
  ++next_;
  read_ahead();
}

void StateStream::settle() {
  if (!settled_) ferry_.settle();
  settled_ = true;
}

const std::byte* StateStream::look(int chunk) {
  settle();
  return host(chunk);
}

std::byte* StateStream::change(int chunk) {
  settle();
  brought_ = next_;  // what is in the ring is old now
  return host(chunk);
}

}  // namespace shoal
