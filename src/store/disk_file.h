// One file of a fixed size on a disk, for what a rank keeps there during a run: made and filled with zeros at the
// start, removed at the end. Transfers run in the background, several at once; every result is checked. Knows nothing
// of what the bytes mean, nor who shares the folder (scratch_folder.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store/block_io.h"

namespace shoal {

class PageDigests;

class DiskFile {
 public:
  struct Options {
    std::filesystem::path folder{};  // is there
    std::string name{};              // of a file that is not there
    size_t nbytes = 0;               // rounded up to kAlignment; 0 is a valid, empty file
    size_t block_nbytes = 1u << 20;  // a transfer is cut into blocks of this; a multiple of kAlignment
    int queue_depth = 8;             // blocks in flight, for each of `threads`
    int threads = 1;                 // queues beside each other
    bool checksum = false;           // every page of kAlignment bytes is compared with what was written there
    bool use_uring = true;           // false: threads with pread and pwrite
    // Instead of what use_uring says: for tests, which have faults to inject.
    std::function<std::unique_ptr<BlockIo>(int depth)> make_io = nullptr;
  };
  // Of offsets, lengths and memory.
  static constexpr size_t kAlignment = 4096;

  // Makes the file with all its space. Throws shoal::Error when the space is not there, or the folder cannot be used.
  explicit DiskFile(Options options);
  // Waits for every transfer, then removes the file.
  ~DiskFile();
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;

  // A read or write on its way. Movable; may outlive the file.
  class Transfer {
   public:
    Transfer() = default;  // one that is done
    ~Transfer();           // waits; an error that nobody asked for is lost
    Transfer(Transfer&& other) noexcept = default;
    Transfer& operator=(Transfer&& other) noexcept;  // waits for the one that is replaced

    // Returns when all bytes are moved, or throws an Error with path, offset and cause when any could not be; again, if
    // called again. A read that failed leaves the memory undefined, a write the bytes of the file.
    void wait();
    // Whether wait() would return, or throw, at once.
    bool done() const;

   private:
    friend class DiskFile;
    struct State;
    explicit Transfer(std::shared_ptr<State> state);
    std::shared_ptr<State> state_;  // shared with the blocks in flight
  };

  // From any thread. The memory stays, and what is written stays unchanged, until the transfer is done. The order of
  // overlapping transfers is the caller's care: wait for the first before the second is begun.
  [[nodiscard]] Transfer read(uint64_t offset, std::byte* memory, size_t nbytes);
  [[nodiscard]] Transfer write(uint64_t offset, const std::byte* memory, size_t nbytes);

  // For memory that many transfers use: see BlockIo::register_memory. It must outlive this object. True if it helped.
  bool register_memory(std::byte* memory, size_t nbytes);

  struct Counters {
    uint64_t read_nbytes = 0;  // of blocks that are done
    uint64_t written_nbytes = 0;
    double waited_seconds = 0;  // inside wait(), of all transfers
  };
  Counters counters() const;

  const std::filesystem::path& path() const { return path_; }
  size_t nbytes() const { return nbytes_; }  // a multiple of kAlignment
  // False where the file system has no O_DIRECT: the page cache then takes host memory too.
  bool is_direct() const { return direct_; }
  // "io_uring, 8 in flight, O_DIRECT"; for the banner.
  std::string description() const;

 private:
  struct Tally;
  struct Block;

  Transfer begin(BlockRequest::Kind kind, uint64_t offset, std::byte* memory, size_t nbytes);
  void start(std::shared_ptr<Block> block);
  void go_on(std::shared_ptr<Block> block, int64_t result);
  // What is wrong with the file itself, in words: removed, or shorter than it was made; "" if nothing.
  std::string damage() const;

  std::filesystem::path path_;
  size_t nbytes_ = 0;
  size_t block_nbytes_ = 0;
  int fd_ = -1;
  bool direct_ = false;
  std::string why_not_direct_;
  std::unique_ptr<PageDigests> digests_;  // null unless checksums are kept
  std::shared_ptr<Tally> tally_;          // shared with transfers, which may outlive the file
  std::atomic<unsigned> next_io_ = 0;
  std::vector<std::unique_ptr<BlockIo>> ios_;
};

}  // namespace shoal
