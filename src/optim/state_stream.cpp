// See state_stream.h.
#include "optim/state_stream.h"

#include <algorithm>
#include <numeric>
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
      copies_(queue.make_copy_streams(static_cast<int>(chunk_nbytes_.size())), static_cast<int>(chunk_nbytes_.size())) {
  size_t offset = 0;
  for (const size_t nbytes : chunk_nbytes_) {
    host_offsets_.push_back(offset);
    offset += nbytes;
  }
  SHOAL_CHECK_LE(offset, host_->nbytes());
  round_.resize(chunk_nbytes_.size());
  std::iota(round_.begin(), round_.end(), 0);
  positions_.assign(round_.begin(), round_.end());
  make_ring(shoal::ring_nbytes(round_nbytes(), staging));
  copies_.log_stalls_as("host: states");
  copies_.pin(host_->data(), host_->nbytes());
}

void StateStream::make_ring(size_t nbytes) {
  ring_ = queue_.allocate(nbytes, ledger_, MemoryKind::state_ring);
  places_ = lay_ring(round_nbytes(), nbytes);
}

std::vector<size_t> StateStream::round_nbytes() const {
  std::vector<size_t> nbytes;
  for (const int chunk : round_) nbytes.push_back(chunk_nbytes_[static_cast<size_t>(chunk)]);
  return nbytes;
}

size_t StateStream::streamed_nbytes() const {
  const std::vector<size_t> nbytes = round_nbytes();
  return std::accumulate(nbytes.begin(), nbytes.end(), size_t{0});
}

std::vector<std::byte*> StateStream::leave_out(const std::vector<int>& chunks) {
  SHOAL_CHECK(next_ % count() == 0, "chunks are left out inside a round");
  settle();
  std::vector<std::byte*> homes;
  SHOAL_CHECK_LT(chunks.size(), round_.size());
  for (const int chunk : chunks) {
    std::erase(round_, chunk);
    homes.push_back(host(chunk));
  }
  for (size_t position = 0; position < round_.size(); ++position) {
    positions_[static_cast<size_t>(round_[position])] = position;
  }
  next_ = brought_ = 0;
  places_ = lay_ring(round_nbytes(), ring_->nbytes());
  return homes;
}

std::span<std::byte> StateStream::empty_ring() {
  SHOAL_CHECK(next_ % count() == 0, "the ring is emptied inside a round");
  settle();
  brought_ = next_;
  return {ring_->data(), ring_->nbytes()};
}

bool StateStream::grow(size_t staging) {
  SHOAL_CHECK(next_ % count() == 0, "the ring grows inside a round");
  const size_t nbytes = shoal::ring_nbytes(round_nbytes(), staging);
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
  if (next_ == round_end()) return copies_.pace();
  // What is brought for the next round may wait.
  copies_.pace(static_cast<size_t>(std::max<int64_t>(0, brought_ - round_end())));
}

// The ring holds no chunk twice, so nothing is brought further ahead than one round.
void StateStream::read_ahead() {
  for (;; ++brought_) {
    const int64_t position = brought_ % count();
    const RingPlace& place = places_[static_cast<size_t>(position)];
    const int64_t back = (position - place.after + count() - 1) % count() + 1;
    if (brought_ - back >= next_) return;  // who lies there has not been given back
    const bool first = brought_ < back;
    const int chunk = round_[static_cast<size_t>(position)];
    copies_.bring(chunk, {memory(chunk), host(chunk), chunk_nbytes_[static_cast<size_t>(chunk)]},
                  first ? -1 : round_[static_cast<size_t>(place.after)]);
    settled_ = false;
  }
}

void StateStream::take(int chunk) {
  SHOAL_CHECK_EQ(round_[static_cast<size_t>(next_ % count())], chunk);
  read_ahead();
  copies_.begin_use(chunk);
}

void StateStream::give(int chunk) {
  SHOAL_CHECK_EQ(round_[static_cast<size_t>(next_ % count())], chunk);
  copies_.take_back(chunk, {host(chunk), memory(chunk), chunk_nbytes_[static_cast<size_t>(chunk)]});
  settled_ = false;
  ++next_;
  read_ahead();
}

void StateStream::settle() {
  if (!settled_) copies_.settle();
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
