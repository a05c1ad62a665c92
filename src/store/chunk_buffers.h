// Chunks of a file that come to memory and go back, in a few buffers: chunk i always to buffer i modulo their number.
// Reads may run ahead and writes run behind. Who uses it decides the order (chunk_ring.h, shard/disk_shards.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "device/slab.h"
#include "store/disk_file.h"

namespace shoal {

class ChunkBuffers {
 public:
  using Allocate = std::function<std::shared_ptr<Slab>(size_t nbytes)>;

  // Chunks of these sizes, one after the other in the file, each from a page on. The file outlives this object and is
  // as large as file_nbytes(). At least one buffer, and as many as there are chunks at most.
  ChunkBuffers(DiskFile& file, const std::vector<size_t>& chunk_nbytes, int buffers, const Allocate& allocate);
  ~ChunkBuffers();
  ChunkBuffers(const ChunkBuffers&) = delete;
  ChunkBuffers& operator=(const ChunkBuffers&) = delete;
  static size_t file_nbytes(const std::vector<size_t>& chunk_nbytes);

  int chunks() const { return static_cast<int>(chunks_.size()); }
  int buffers() const { return static_cast<int>(buffers_.size()); }
  int buffer_of(int chunk) const { return chunk % buffers(); }
  // The memory of the buffers. It is registered with the file, so it must outlive it: who makes the file keeps it.
  const std::shared_ptr<Slab>& slab() const { return slab_; }
  // Where the chunk's bytes are while it has its buffer.
  std::byte* memory(int chunk) const;
  // Whether it has: its bytes are there, or on their way.
  bool has(int chunk) const { return at(chunk).chunk == chunk; }

  // Begins to read the chunk if its buffer can be had without waiting, and to write what keeps it from that.
  void expect(int chunk);
  // Waits until the chunk's bytes are there. They stay until another chunk gets the buffer.
  const std::byte* look(int chunk);
  // The same, to change them: they are written before another chunk gets the buffer, or when store() says so.
  std::byte* change(int chunk);
  // Begins to write what was changed.
  void store(int chunk);

 private:
  struct Chunk {
    uint64_t offset = 0;
    size_t nbytes = 0;  // in whole pages
  };
  struct Buffer {
    size_t offset = 0;     // in the slab
    int chunk = -1;        // whose bytes are here, or come; -1: nobody's
    bool reading = false;  // the transfer brings them
    bool dirty = false;    // they are newer than the file's, and no write has begun
    DiskFile::Transfer transfer;
  };

  Buffer& at(int chunk) { return buffers_[static_cast<size_t>(buffer_of(chunk))]; }
  const Buffer& at(int chunk) const { return buffers_[static_cast<size_t>(buffer_of(chunk))]; }
  void begin_read(Buffer& buffer, int chunk);
  void begin_write(Buffer& buffer);
  void finish_write(Buffer& buffer);

  DiskFile& file_;
  std::vector<Chunk> chunks_;
  std::shared_ptr<Slab> slab_;
  std::vector<Buffer> buffers_;
};

}  // namespace shoal
