// A file that threads of its own write, while who has the bytes goes on. They are put in the order of the file, into a
// window of memory: where it holds the whole file nobody waits, and where it does not, who puts waits for what is
// written. Ranges of the file get a checksum on the same threads. Knows nothing of what the bytes mean.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/durable_file.h"

namespace shoal::checkpoint {

// Bytes [offset, offset + nbytes) of a file.
struct FileRange {
  int64_t offset = 0;
  int64_t nbytes = 0;
};

class BehindFile {
 public:
  struct Options {
    std::string path;
    int64_t nbytes = 0;             // of the whole file
    std::vector<FileRange> ranges;  // that will be put, in order, each at a multiple of kDirectAlignment; zeros between
    int threads = 3;                // of which one makes checksums while others wait for the disk
    std::function<void(int64_t offset)> before_write = {};  // for tests: may hold a write up, or throw
    std::function<void(int thread)> before_thread = {};     // for tests: may throw, as a system without threads left
  };
  // The least window that works with such ranges.
  static int64_t least_window(const std::vector<FileRange>& ranges, int64_t nbytes);

  // Makes the file and takes its space; throws what the disk says. The window is not less than that, begins at a
  // multiple of kDirectAlignment, has such a number of bytes, and outlives this object.
  BehindFile(std::span<std::byte> window, Options options);
  // Ends the threads, each after the write that it is at. What is not written stays unwritten.
  ~BehindFile();
  BehindFile(const BehindFile&) = delete;
  BehindFile& operator=(const BehindFile&) = delete;

  // Puts the next range: `fill` writes its bytes. After a failure they are taken and dropped. All of one thread.
  void put(const std::function<void(std::byte*)>& fill);

  // Everything is on the disk, or it failed.
  bool is_done() const;
  int64_t written_nbytes() const;
  // Waits for that. The checksums of the ranges; throws what failed.
  const std::vector<uint64_t>& wait();
  // The same for so long at most. True: it is done.
  bool wait_for(double seconds);

 private:
  static constexpr int64_t kBlock = int64_t{4} << 20;  // bytes of one write

  void start_threads();
  void end_threads();
  void serve();
  void write_block(int64_t block);
  void digest_range(size_t range);
  void finish();
  // With the lock held.
  int64_t free_before() const;
  bool has_block() const;
  bool has_range() const;
  bool all_written() const { return blocks_done_ == blocks_; }
  // The window's parts in which a range of the file lies: two where it goes over the end.
  std::vector<std::span<std::byte>> parts_of(int64_t offset, int64_t nbytes) const;

  std::span<std::byte> window_;
  Options options_;
  int64_t padded_nbytes_ = 0;
  int64_t blocks_ = 0;
  DurableFile file_;
  std::vector<std::byte> over_the_end_;  // a range is filled here where it lies in two parts

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  size_t ranges_put_ = 0;
  int64_t put_ = 0;  // bytes of the file, from its begin, zeros between ranges counted
  int64_t next_block_ = 0, blocks_done_ = 0, first_open_block_ = 0;
  size_t next_range_ = 0, first_open_range_ = 0;
  std::vector<bool> block_done_, range_done_;
  std::vector<uint64_t> digests_;
  std::exception_ptr error_;
  bool finishing_ = false, done_ = false, stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace shoal::checkpoint
