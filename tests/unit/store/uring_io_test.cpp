// What io_uring alone can do; what it shares with threads is in block_io_test.cpp.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <thread>

#include "store/block_io.h"
#include "temp_folder.h"
#include "unit/store/aligned_memory.h"
#include "unit/store/in_child.h"

namespace shoal::testing {
namespace {

constexpr size_t kUringPage = 4096;

int64_t move(BlockIo& io, BlockRequest request) {
  std::promise<int64_t> result;
  request.done = [&](int64_t moved) { result.set_value(moved); };
  io.start(request);
  return result.get_future().get();
}

TEST(UringIo, RegisteredMemoryIsUsedInsideAndAcrossItsEnds) {
  std::string why_not;
  const AlignedMemory written = random_memory(16 * kUringPage, 1);
  const AlignedMemory read(16 * kUringPage);
  const auto io = make_uring_io(4, &why_not);
  if (io == nullptr) GTEST_SKIP() << why_not;
  if (!io->register_memory(written.data(), 8 * kUringPage) ||
      !io->register_memory(read.data() + 2 * kUringPage, 4 * kUringPage)) {
    GTEST_SKIP() << "memory cannot be registered here: an old kernel, or ulimit -l";
  }
  const TempFolder temp;
  const int fd = ::open((temp / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const auto write = BlockRequest::Kind::write;
  EXPECT_EQ(move(*io, {write, fd, 0, written.data(), 8 * kUringPage}), 8 * kUringPage);
  EXPECT_EQ(move(*io, {write, fd, 6 * kUringPage, written.data() + 6 * kUringPage, 4 * kUringPage}), 4 * kUringPage);
  EXPECT_EQ(move(*io, {write, fd, 10 * kUringPage, written.data() + 10 * kUringPage, 6 * kUringPage}), 6 * kUringPage);
  for (size_t page = 0; page < 16; page += 2) {
    EXPECT_EQ(
        move(*io, {BlockRequest::Kind::read, fd, page * kUringPage, read.data() + page * kUringPage, 2 * kUringPage}),
        2 * kUringPage);
  }
  EXPECT_TRUE(same_bytes(written, read));
  ::close(fd);
}

// Whoever is told may take long, over a checksum say, and the disk has its next request meanwhile.
TEST(UringIo, TheNextRequestIsUnderWayBeforeOneIsTold) {
  std::string why_not;
  const AlignedMemory written = random_memory(2 * kUringPage, 1);
  AlignedMemory seen(kUringPage);
  auto io = make_uring_io(1, &why_not);
  if (io == nullptr) GTEST_SKIP() << why_not;
  const TempFolder temp;
  const int fd = ::open((temp / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  std::atomic<bool> has_all = false, came = false;
  const auto wait_for_all = [&](int64_t) {
    while (!has_all) std::this_thread::yield();
  };
  const auto wait_for_the_last = [&](int64_t) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!came && std::chrono::steady_clock::now() < end) {
      came = ::pread(fd, seen.data(), kUringPage, kUringPage) == kUringPage &&
             std::memcmp(seen.data(), written.data() + kUringPage, kUringPage) == 0;
    }
  };
  const auto write = BlockRequest::Kind::write;
  io->start({write, fd, 0, written.data(), kUringPage, wait_for_all});  // the others are queued when the ring goes on
  io->start({write, fd, 0, written.data(), kUringPage, wait_for_the_last});
  io->start({write, fd, kUringPage, written.data() + kUringPage, kUringPage, [](int64_t) {}});
  has_all = true;
  io.reset();
  EXPECT_TRUE(came);
  ::close(fd);
}

TEST(UringIo, WhereThereIsNoneItSaysWhyAndThreadsTakeItsPlace) {
  // No descriptor is left: the kernel cannot make a ring.
  const int code = in_child([] {
    rlimit before{};
    getrlimit(RLIMIT_NOFILE, &before);
    const rlimit none{3, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    std::string why_not;
    const auto uring = make_uring_io(4, &why_not);
    const std::string instead = make_block_io(4, true)->description();
    setrlimit(RLIMIT_NOFILE, &before);  // sanitizers need descriptors to look at memory
    EXPECT_EQ(uring, nullptr);
    EXPECT_THAT(why_not, ::testing::AnyOf("io_uring: Too many open files (EMFILE)", "this build has no liburing",
                                          ::testing::StartsWith("io_uring: ")));
    EXPECT_EQ(instead, "4 threads with pread and pwrite (" + why_not + ")");
    return 0;
  });
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace shoal::testing
