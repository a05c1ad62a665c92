// Chunks of a file that are worked on in memory, in a fixed order, round and round: a few buffers, reads that run ahead
// of the work and writes that run behind it. Chunk i always comes to buffer i modulo their number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/slab.h"
#include "store/disk_file.h"

namespace shoal {

class ChunkRing {
 public:
  // Chunks of these sizes, one after the other in the file, each from a page on. The file outlives this object and is
  // as large as file_nbytes(). At least one buffer, and as many as there are chunks at most.
  ChunkRing(DiskFile& file, const std::vector<size_t>& chunk_nbytes, int buffers, std::shared_ptr<Ledger> ledger);
  ~ChunkRing();
  ChunkRing(const ChunkRing&) = delete;
  ChunkRing& operator=(const ChunkRing&) = delete;
  static size_t file_nbytes(const std::vector<size_t>& chunk_nbytes);

  // The buffers. They are registered with the file, so they must outlive it: who makes the file keeps them.
  const std::shared_ptr<Slab>& buffers() const { return slab_; }
  // Where the chunk's bytes are while it is taken.
  std::byte* memory(int chunk) const;

  // Begins to read what is taken next, as far as buffers are free. Blocks for nothing.
  void read_ahead();
  // Waits until the next chunk's bytes are there. Each chunk is taken in its turn and given back before the next.
  void take(int chunk);
  // Its bytes are changed: begins to write them, and to read ahead.
  void give(int chunk);

  // Any chunk, between rounds: valid until another is looked at. change() means that its bytes will be written.
  const std::byte* look(int chunk);
  std::byte* change(int chunk);

 private:
  struct Chunk {
    uint64_t offset = 0;
    size_t nbytes = 0;  // in whole pages
  };
  struct Buffer {
    int chunk = -1;        // whose bytes are here, or come; -1: nobody's
    bool reading = false;  // the transfer brings them
    bool dirty = false;    // they are newer than the file's, and no write has begun
    DiskFile::Transfer transfer;
  };

  Buffer& buffer_of(int chunk) { return buffers_[static_cast<size_t>(chunk) % buffers_.size()]; }
  bool is_shared_before(size_t k) const;
  void begin_read(Buffer& buffer, int chunk);
  void begin_write(Buffer& buffer);
  void finish_write(Buffer& buffer);
  // Brings the chunk into its buffer, which is written first where it must be. Waits.
  void bring(int chunk);

  DiskFile& file_;
  std::vector<Chunk> chunks_;
  size_t buffer_nbytes_ = 0;
  std::shared_ptr<Slab> slab_;
  std::vector<Buffer> buffers_;
  int next_ = 0;  // taken next
};

}  // namespace shoal
