// Both implementations of block_io.h against each other: what one writes, the other reads.
#include "store/block_io.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <vector>

#include "temp_folder.h"
#include "unit/store/aligned_memory.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;
constexpr size_t kRequestNbytes = 8192;

class OpenFile {
 public:
  explicit OpenFile(const std::string& path, int flags = O_RDWR | O_CREAT)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  ~OpenFile() { ::close(fd_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// Moves all of `memory`, block by block, and waits. Returns the results by block.
std::vector<int64_t> move_all(BlockIo* io, BlockRequest::Kind kind, int fd, const AlignedMemory& memory) {
  std::vector<int64_t> results(memory.nbytes() / kRequestNbytes);
  std::mutex mutex;
  std::condition_variable changed;
  size_t left = results.size();
  for (size_t i = 0; i < results.size(); ++i) {
    io->start(
        {kind, fd, i * kRequestNbytes, memory.data() + i * kRequestNbytes, kRequestNbytes, [&, i](int64_t result) {
           const std::lock_guard lock(mutex);
           results[i] = result;
           --left;
           changed.notify_all();
         }});
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return left == 0; });
  return results;
}

struct Pair {
  std::unique_ptr<BlockIo> threads = make_thread_io(3);
  std::string why_not;
  std::unique_ptr<BlockIo> uring = make_uring_io(3, &why_not);
};

TEST(BlockIo, OneReadsWhatTheOtherWrote) {
  const Pair io;
  if (io.uring == nullptr) GTEST_SKIP() << io.why_not;
  const TempFolder temp;
  for (const bool uring_writes : {false, true}) {
    const OpenFile file(temp / (uring_writes ? "a" : "b"));
    const AlignedMemory written = random_memory(50 * kRequestNbytes, uring_writes);
    const AlignedMemory read(50 * kRequestNbytes);
    const std::vector<int64_t> all(50, kRequestNbytes);
    BlockIo* writer = uring_writes ? io.uring.get() : io.threads.get();
    BlockIo* reader = uring_writes ? io.threads.get() : io.uring.get();
    EXPECT_EQ(move_all(writer, BlockRequest::Kind::write, file.fd(), written), all);
    EXPECT_EQ(move_all(reader, BlockRequest::Kind::read, file.fd(), read), all);
    EXPECT_TRUE(same_bytes(written, read));
  }
}

TEST(BlockIo, BothGiveTheSameResultsWhereThingsGoWrong) {
  const Pair io;
  const TempFolder temp;
  put_file(temp / "short", std::string(2 * kRequestNbytes + 100, 'x'));
  const OpenFile reads_only(temp / "short", O_RDONLY);
  const OpenFile writes_only(temp / "short", O_WRONLY);
  const AlignedMemory memory = random_memory(4 * kRequestNbytes, 1);
  const std::vector<int64_t> ends{kRequestNbytes, kRequestNbytes, 100, 0};
  const std::vector<int64_t> refused(4, -EBADF);
  for (BlockIo* each : {io.threads.get(), io.uring.get()}) {
    if (each == nullptr) continue;
    EXPECT_EQ(move_all(each, BlockRequest::Kind::read, reads_only.fd(), memory), ends) << each->description();
    EXPECT_EQ(move_all(each, BlockRequest::Kind::write, reads_only.fd(), memory), refused) << each->description();
    EXPECT_EQ(move_all(each, BlockRequest::Kind::read, writes_only.fd(), memory), refused) << each->description();
    EXPECT_EQ(move_all(each, BlockRequest::Kind::read, -1, memory), refused) << each->description();
  }
}

TEST(BlockIo, ItsEndFinishesWhatWasStartedAndWhatThatStarts) {
  const TempFolder temp;
  const OpenFile file(temp / "file");
  const AlignedMemory memory = random_memory(kRequestNbytes, 2);
  for (const bool use_uring : {false, true}) {
    std::atomic<int> done = 0;
    {
      const auto io = make_block_io(2, use_uring);
      for (int chain = 0; chain < 10; ++chain) {
        BlockRequest request{BlockRequest::Kind::write, file.fd(), 0, memory.data(), kRequestNbytes};
        BlockRequest next = request;
        next.done = [&](int64_t) { ++done; };
        request.done = [&, next, io = io.get()](int64_t) {
          ++done;
          io->start(next);
        };
        io->start(request);
      }
    }
    EXPECT_EQ(done, 20) << use_uring;
  }
}

TEST(BlockIo, AnIdleOneEnds) {
  for (const bool use_uring : {false, true}) make_block_io(2, use_uring);
}

TEST(BlockIo, SaysWhichAndWhy) {
  EXPECT_EQ(make_thread_io(3)->description(), "3 threads with pread and pwrite");
  EXPECT_EQ(make_block_io(2, false)->description(), "2 threads with pread and pwrite (io_uring is turned off)");
  std::string why_not;
  if (make_uring_io(4, &why_not) != nullptr) {
    EXPECT_EQ(make_block_io(4, true)->description(), "io_uring, 4 in flight");
  } else {
    EXPECT_EQ(make_block_io(4, true)->description(), "4 threads with pread and pwrite (" + why_not + ")");
  }
}

}  // namespace
}  // namespace shoal::testing
