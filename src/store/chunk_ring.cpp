// See chunk_ring.h.
#include "store/chunk_ring.h"

#include <utility>

#include "base/check.h"

namespace shoal {

ChunkRing::ChunkRing(DiskFile& file, const std::vector<size_t>& chunk_nbytes, int buffers,
                     std::shared_ptr<Ledger> ledger)
    : buffers_(file, chunk_nbytes, buffers, [&](size_t nbytes) {
        return Slab::create(nbytes, Slab::Backing::anonymous, std::move(ledger), MemoryKind::disk_buffers);
      }) {}

void ChunkRing::read_ahead() {
  for (int turn = 0; turn < buffers_.buffers(); ++turn) {
    if (!is_shared_before(turn)) buffers_.expect(chunk_at(turn));
  }
}

// Whether one that is taken sooner than that has the same buffer: at their turn two of the window may.
bool ChunkRing::is_shared_before(int turn) const {
  for (int sooner = 0; sooner < turn; ++sooner) {
    if (buffers_.buffer_of(chunk_at(sooner)) == buffers_.buffer_of(chunk_at(turn))) return true;
  }
  return false;
}

void ChunkRing::take(int chunk) {
  SHOAL_CHECK_EQ(chunk, next_);
  read_ahead();
  buffers_.change(chunk);
}

void ChunkRing::give(int chunk) {
  SHOAL_CHECK_EQ(chunk, next_);
  buffers_.store(chunk);
  next_ = chunk_at(1);
  read_ahead();
}

}  // namespace shoal
