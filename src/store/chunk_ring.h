// Chunks of a file that are worked on in memory, in a fixed order, round and round: a few buffers, reads that run ahead
// of the work and writes that run behind it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "store/chunk_buffers.h"

namespace shoal {

class ChunkRing {
 public:
  // See ChunkBuffers for the file and the buffers.
  ChunkRing(DiskFile& file, const std::vector<size_t>& chunk_nbytes, int buffers, std::shared_ptr<Ledger> ledger);

  // See ChunkBuffers::slab.
  const std::shared_ptr<Slab>& slab() const { return buffers_.slab(); }
  // Where the chunk's bytes are while it is taken.
  std::byte* memory(int chunk) const { return buffers_.memory(chunk); }

  // Begins to read what is taken next, as far as buffers are free. Blocks for nothing.
  void read_ahead();
  // Waits until the next chunk's bytes are there. Each chunk is taken in its turn and given back before the next.
  void take(int chunk);
  // Its bytes are changed: begins to write them, and to read ahead.
  void give(int chunk);

  // Any chunk, between rounds: valid until another is looked at. change() means that its bytes will be written.
  const std::byte* look(int chunk) { return buffers_.look(chunk); }
  std::byte* change(int chunk) { return buffers_.change(chunk); }

 private:
  // The chunk that is taken so many turns from now.
  int chunk_at(int turn) const { return (next_ + turn) % buffers_.chunks(); }
  bool is_shared_before(int turn) const;

  ChunkBuffers buffers_;
  int next_ = 0;  // taken next
};

}  // namespace shoal
