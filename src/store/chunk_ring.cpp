// See chunk_ring.h.
#include "store/chunk_ring.h"

#include <algorithm>

#include "base/check.h"
#include "plan/memory.h"

namespace shoal {

static_assert(kDiskPage == DiskFile::kAlignment, "the plan counts the pages that the file is made of");

size_t ChunkRing::file_nbytes(const std::vector<size_t>& chunk_nbytes) {
  size_t total = 0;
  for (const size_t nbytes : chunk_nbytes) total += in_pages(nbytes);
  return total;
}

ChunkRing::ChunkRing(DiskFile& file, const std::vector<size_t>& chunk_nbytes, int buffers,
                     std::shared_ptr<Ledger> ledger)
    : file_(file) {
  SHOAL_CHECK_GE(buffers, 1);
  for (const size_t nbytes : chunk_nbytes) {
    const uint64_t offset = chunks_.empty() ? 0 : chunks_.back().offset + chunks_.back().nbytes;
    chunks_.push_back({offset, in_pages(nbytes)});
    buffer_nbytes_ = std::max(buffer_nbytes_, in_pages(nbytes));
  }
  buffers_.resize(std::min(static_cast<size_t>(buffers), chunks_.size()));
  slab_ = Slab::create(buffer_nbytes_ * buffers_.size(), Slab::Backing::anonymous, std::move(ledger),
                       MemoryKind::disk_buffers);
  file_.register_memory(slab_->data(), slab_->nbytes());
}

// Transfers wait for themselves when they die, and use the slab: they go first.
ChunkRing::~ChunkRing() { buffers_.clear(); }

std::byte* ChunkRing::memory(int chunk) const {
  return slab_->data() + static_cast<size_t>(chunk) % buffers_.size() * buffer_nbytes_;
}

void ChunkRing::begin_write(Buffer& buffer) {
  const Chunk& chunk = chunks_[static_cast<size_t>(buffer.chunk)];
  buffer.dirty = false;
  buffer.transfer = file_.write(chunk.offset, memory(buffer.chunk), chunk.nbytes);
}

void ChunkRing::read_ahead() {
  const auto ahead = std::min(buffers_.size(), chunks_.size());
  for (size_t k = 0; k < ahead; ++k) {
    const int chunk = static_cast<int>((static_cast<size_t>(next_) + k) % chunks_.size());
    Buffer& buffer = buffer_of(chunk);
    if (buffer.chunk == chunk || is_shared_before(k)) continue;
    if (buffer.dirty) begin_write(buffer);
    if (!buffer.transfer.done()) continue;
    begin_read(buffer, chunk);
  }
}

// Whether one that is taken sooner than the k-th from now has the same buffer: at their turn two of the window may.
bool ChunkRing::is_shared_before(size_t k) const {
  const auto buffer_at = [&](size_t turn) {
    return (static_cast<size_t>(next_) + turn) % chunks_.size() % buffers_.size();
  };
  for (size_t sooner = 0; sooner < k; ++sooner) {
    if (buffer_at(sooner) == buffer_at(k)) return true;
  }
  return false;
}

// The memory becomes free for it: what is written from there is safe first, and what is read there and not wanted any
// more has come first, or it would come later.
void ChunkRing::begin_read(Buffer& buffer, int chunk) {
  if (buffer.reading) {
    buffer.transfer = {};
  } else {
    finish_write(buffer);
  }
  buffer.chunk = chunk;
  buffer.reading = true;
  const Chunk& place = chunks_[static_cast<size_t>(chunk)];
  buffer.transfer = file_.read(place.offset, memory(chunk), place.nbytes);
}

// Bytes whose write failed are still newer than the file's.
void ChunkRing::finish_write(Buffer& buffer) {
  try {
    buffer.transfer.wait();
  } catch (...) {
    buffer.dirty = true;
    throw;
  }
}

void ChunkRing::bring(int chunk) {
  Buffer& buffer = buffer_of(chunk);
  if (buffer.chunk != chunk) {
    if (buffer.dirty) begin_write(buffer);
    begin_read(buffer, chunk);
  }
  if (!buffer.reading) return finish_write(buffer);  // the caller may change the bytes
  try {
    buffer.transfer.wait();
  } catch (...) {
    buffer.chunk = -1;
    buffer.reading = false;
    throw;
  }
  buffer.reading = false;
}

void ChunkRing::take(int chunk) {
  SHOAL_CHECK_EQ(chunk, next_);
  read_ahead();
  bring(chunk);
}

void ChunkRing::give(int chunk) {
  SHOAL_CHECK_EQ(chunk, next_);
  Buffer& buffer = buffer_of(chunk);
  SHOAL_CHECK_EQ(buffer.chunk, chunk);
  begin_write(buffer);
  next_ = static_cast<int>((static_cast<size_t>(chunk) + 1) % chunks_.size());
  read_ahead();
}

const std::byte* ChunkRing::look(int chunk) {
  bring(chunk);
  return memory(chunk);
}

std::byte* ChunkRing::change(int chunk) {
  bring(chunk);
  buffer_of(chunk).dirty = true;
  return memory(chunk);
}

}  // namespace shoal
