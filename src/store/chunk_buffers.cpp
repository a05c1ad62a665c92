// See chunk_buffers.h.
#include "store/chunk_buffers.h"

#include "base/check.h"
#include "plan/memory.h"

namespace shoal {

static_assert(kDiskPage == DiskFile::kAlignment, "the plan counts the pages that the file is made of");

size_t ChunkBuffers::file_nbytes(const std::vector<size_t>& chunk_nbytes) {
  size_t total = 0;
  for (const size_t nbytes : chunk_nbytes) total += in_pages(nbytes);
  return total;
}

ChunkBuffers::ChunkBuffers(DiskFile& file, const std::vector<size_t>& chunk_nbytes, int buffers,
                           const Allocate& allocate)
    : file_(file) {
  SHOAL_CHECK_GE(buffers, 1);
  for (const size_t nbytes : chunk_nbytes) {
    const uint64_t offset = chunks_.empty() ? 0 : chunks_.back().offset + chunks_.back().nbytes;
    chunks_.push_back({offset, in_pages(nbytes)});
  }
  size_t slab_nbytes = 0;
  for (const size_t nbytes : disk_buffer_sizes(chunk_nbytes, buffers)) {
    buffers_.emplace_back().offset = slab_nbytes;
    slab_nbytes += nbytes;
  }
  slab_ = allocate(slab_nbytes);
  file_.register_memory(slab_->data(), slab_->nbytes());
}

// Transfers wait for themselves when they die, and use the slab: they go first.
ChunkBuffers::~ChunkBuffers() { buffers_.clear(); }

std::byte* ChunkBuffers::memory(int chunk) const { return slab_->data() + at(chunk).offset; }

void ChunkBuffers::begin_write(Buffer& buffer) {
  const Chunk& chunk = chunks_[buffer.chunk];
  buffer.dirty = false;
  buffer.transfer = file_.write(chunk.offset, memory(buffer.chunk), chunk.nbytes);
}

void ChunkBuffers::expect(int chunk) {
  Buffer& buffer = at(chunk);
  if (buffer.chunk == chunk) return;
  if (buffer.dirty) begin_write(buffer);
  if (buffer.transfer.done()) begin_read(buffer, chunk);
}

// The memory becomes free for it: what is written from there is safe first, and what is read there and not wanted any
// more has come first, or it would come later.
void ChunkBuffers::begin_read(Buffer& buffer, int chunk) {
  if (buffer.reading) {
    buffer.transfer = {};
  } else {
    finish_write(buffer);
  }
  buffer.chunk = chunk;
  buffer.reading = true;
  const Chunk& place = chunks_[chunk];
  buffer.transfer = file_.read(place.offset, memory(chunk), place.nbytes);
}

// Bytes whose write failed are still newer than the file's.
void ChunkBuffers::finish_write(Buffer& buffer) {
  try {
    buffer.transfer.wait();
  } catch (...) {
    buffer.dirty = true;
    throw;
  }
}

const std::byte* ChunkBuffers::look(int chunk) {
  Buffer& buffer = at(chunk);
  if (buffer.chunk != chunk) {
    if (buffer.dirty) begin_write(buffer);
    begin_read(buffer, chunk);
  }
  if (!buffer.reading) return memory(chunk);
  try {
    buffer.transfer.wait();
  } catch (...) {
    buffer.chunk = -1;
    buffer.reading = false;
    buffer.transfer = {};
    throw;
  }
  buffer.reading = false;
  return memory(chunk);
}

std::byte* ChunkBuffers::change(int chunk) {
  look(chunk);
  finish_write(at(chunk));  // of the same bytes
  at(chunk).dirty = true;
  return memory(chunk);
}

void ChunkBuffers::store(int chunk) {
  Buffer& buffer = at(chunk);
  SHOAL_CHECK_EQ(buffer.chunk, chunk);
  if (buffer.dirty) begin_write(buffer);
}

}  // namespace shoal
