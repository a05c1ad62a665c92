// Reads and writes of blocks on file descriptors, a bounded number in flight, completed in any order: the only door to
// io_uring, and beside it threads with pread and pwrite. Does not retry, cut or align; disk_file.h does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace shoal {

// One read or write. The memory and the descriptor stay until `done` is called, once, from a thread of the BlockIo.
// `result` is the number of bytes moved, which may be fewer than asked for (0: the file ends here), or -errno.
// `done` may start further requests, and does not throw.
struct BlockRequest {
  enum class Kind : uint8_t { read, write };
  Kind kind = Kind::read;
  int fd = -1;
  uint64_t offset = 0;
  std::byte* memory = nullptr;  // a write only reads it
  size_t nbytes = 0;
  std::function<void(int64_t result)> done = nullptr;
};

class BlockIo {
 public:
  // Returns when all that was started is done.
  virtual ~BlockIo() = default;
  // Does not wait: what exceeds the bound of requests in flight is queued. From any thread.
  virtual void start(BlockRequest request) = 0;
  // Lets the system keep the pages of this memory at hand, where that makes requests inside it cheaper. The memory
  // stays mapped until this object is gone. True if it did; what lies in other memory is read and written just as well.
  virtual bool register_memory(std::byte* memory, size_t nbytes) = 0;
  // "io_uring, 8 in flight".
  virtual std::string description() const = 0;
};

// Threads with pread and pwrite, one for each request in flight. `why` is why it is not io_uring; it ends up in the
// description.
std::unique_ptr<BlockIo> make_thread_io(int depth, const std::string& why = "");

// Null where the kernel, or this build, does not give us io_uring; then *why_not says why.
std::unique_ptr<BlockIo> make_uring_io(int depth, std::string* why_not);

// io_uring where it is wanted and to be had, threads otherwise.
std::unique_ptr<BlockIo> make_block_io(int depth, bool use_uring);

}  // namespace shoal
