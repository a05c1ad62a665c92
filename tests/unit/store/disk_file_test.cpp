#include "store/disk_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "base/wait_log.h"
#include "message_of.h"
#include "shoal/error.h"
#include "temp_folder.h"
#include "unit/store/aligned_memory.h"
#include "unit/store/faulty_io.h"

namespace shoal::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
constexpr size_t kPage = DiskFile::kAlignment;
constexpr size_t kBlock = 4 * kPage;

// Both real implementations; each case is a promise of both. Where io_uring is not to be had, that half is skipped.
class RealDiskFile : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    std::string why_not;
    if (GetParam() && make_uring_io(1, &why_not) == nullptr) GTEST_SKIP() << why_not;
  }
  DiskFile::Options options(size_t nbytes) const {
    return {.folder = temp.path(), .name = "states", .nbytes = nbytes, .block_nbytes = kBlock, .use_uring = GetParam()};
  }
  const TempFolder temp;
};
INSTANTIATE_TEST_SUITE_P(Io, RealDiskFile, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "uring" : "threads"; });

TEST_P(RealDiskFile, ReadsBackWhatWasWritten) {
  for (const bool checksum : {false, true}) {
    for (const size_t pages : {1, 3, 4, 5, 64, 129}) {
      DiskFile::Options wanted = options(pages * kPage);
      wanted.checksum = checksum;
      DiskFile file(wanted);
      const AlignedMemory written = random_memory(pages * kPage, pages);
      AlignedMemory read(pages * kPage);
      file.write(0, written.data(), written.nbytes()).wait();
      file.read(0, read.data(), read.nbytes()).wait();
      EXPECT_TRUE(same_bytes(written, read)) << pages;
      EXPECT_EQ(std::memcmp(text_of_file(temp / "states").data(), written.data(), written.nbytes()), 0) << pages;
      EXPECT_EQ(file.counters().read_nbytes, pages * kPage);
      EXPECT_EQ(file.counters().written_nbytes, pages * kPage);
    }
  }
}

TEST_P(RealDiskFile, ANewFileIsZerosAndIsGoneWithItsObject) {
  {
    DiskFile::Options wanted = options(10'000);
    wanted.checksum = true;
    DiskFile file(wanted);
    EXPECT_EQ(file.nbytes(), 3 * kPage);
    EXPECT_EQ(std::filesystem::file_size(temp / "states"), 3 * kPage);
    AlignedMemory memory = random_memory(3 * kPage, 1);
    file.read(0, memory.data(), memory.nbytes()).wait();
    EXPECT_TRUE(same_bytes(memory, AlignedMemory(3 * kPage)));
  }
  EXPECT_FALSE(std::filesystem::exists(temp / "states"));
}

TEST_P(RealDiskFile, AnEmptyFileIsAFile) {
  DiskFile file(options(0));
  EXPECT_EQ(file.nbytes(), 0u);
  AlignedMemory memory(kPage);
  file.read(0, memory.data(), 0).wait();
  DiskFile::Transfer nothing;
  EXPECT_TRUE(nothing.done());
  nothing.wait();
}

TEST_P(RealDiskFile, ManyTransfersInFlightKeepApart) {
  constexpr size_t kCount = 24, kEach = 7 * kPage;
  DiskFile::Options wanted = options(kCount * kEach);
  wanted.threads = 2;
  wanted.queue_depth = 3;
  wanted.checksum = true;
  DiskFile file(wanted);
  const AlignedMemory written = random_memory(kCount * kEach, 2);
  AlignedMemory read(kCount * kEach);
  std::vector<DiskFile::Transfer> transfers;
  for (size_t i = 0; i < kCount; ++i) transfers.push_back(file.write(i * kEach, written.data() + i * kEach, kEach));
  for (auto& transfer : transfers) transfer.wait();
  for (size_t i = 0; i < kCount; ++i) {
    const size_t other = kCount - 1 - i;
    transfers[i] = file.read(other * kEach, read.data() + other * kEach, kEach);
  }
  for (auto& transfer : transfers) transfer.wait();
  EXPECT_TRUE(same_bytes(written, read));
}

TEST_P(RealDiskFile, ATransferNobodyWaitsForIsCarriedOut) {
  DiskFile file(options(64 * kPage));
  const AlignedMemory written = random_memory(64 * kPage, 3);
  AlignedMemory read(64 * kPage);
  { const DiskFile::Transfer dropped = file.write(0, written.data(), written.nbytes()); }
  file.read(0, read.data(), read.nbytes()).wait();
  EXPECT_TRUE(same_bytes(written, read));
}

TEST_P(RealDiskFile, ATransferMayOutliveTheFile) {
  const AlignedMemory written = random_memory(64 * kPage, 4);
  DiskFile::Transfer transfer;
  {
    DiskFile file(options(64 * kPage));
    transfer = file.write(0, written.data(), written.nbytes());
  }
  EXPECT_TRUE(transfer.done());
  transfer.wait();
}

TEST_P(RealDiskFile, RegisteredMemoryHoldsTheSameBytes) {
  AlignedMemory written = random_memory(40 * kPage, 5);
  AlignedMemory read(40 * kPage);
  const AlignedMemory apart = random_memory(40 * kPage, 6);
  DiskFile file(options(80 * kPage));
  file.register_memory(written.data(), written.nbytes());
  file.register_memory(read.data() + 4 * kPage, 8 * kPage);  // some requests lie inside, some across its ends
  DiskFile::Transfer one = file.write(0, written.data(), written.nbytes());
  DiskFile::Transfer two = file.write(40 * kPage, apart.data(), apart.nbytes());
  one.wait();
  two.wait();
  file.read(0, read.data(), read.nbytes()).wait();
  EXPECT_TRUE(same_bytes(written, read));
  file.read(40 * kPage, read.data(), read.nbytes()).wait();
  EXPECT_TRUE(same_bytes(apart, read));
}

TEST_P(RealDiskFile, AFileThatWasCutOffIsSaid) {
  DiskFile file(options(8 * kPage));
  AlignedMemory memory = random_memory(8 * kPage, 7);
  file.write(0, memory.data(), memory.nbytes()).wait();
  ASSERT_EQ(::truncate((temp / "states").c_str(), 3 * kPage + 17), 0);
  const std::string cut =
      " failed: the file was cut off at 12305 bytes of 32768. Let nobody else write to this folder;"
      " resume from a checkpoint.";
  EXPECT_EQ(message_of([&] { file.read(4 * kPage, memory.data(), 4 * kPage).wait(); }),
            "[disk " + (temp / "states") + "] read of 16384 bytes at 16384" + cut);
  // A write would make it long again, and hide that bytes are lost.
  EXPECT_EQ(message_of([&] { file.write(7 * kPage, memory.data(), kPage).wait(); }),
            "[disk " + (temp / "states") + "] write of 4096 bytes at 28672" + cut);
  EXPECT_EQ(std::filesystem::file_size(temp / "states"), 3 * kPage + 17);
}

TEST_P(RealDiskFile, AFileThatVanishedIsSaid) {
  DiskFile file(options(8 * kPage));
  AlignedMemory memory = random_memory(8 * kPage, 8);
  std::filesystem::remove(temp / "states");
  const auto removed = AllOf(StartsWith("[disk " + (temp / "states") + "] "), HasSubstr("the file was removed"),
                             HasSubstr("(ENOENT)"), HasSubstr("resume from a checkpoint"));
  EXPECT_THAT(message_of([&] { file.read(0, memory.data(), kPage).wait(); }), removed);
  EXPECT_THAT(message_of([&] { file.write(0, memory.data(), kPage).wait(); }), removed);
}

TEST_P(RealDiskFile, AFlippedBitIsFoundByItsChecksum) {
  DiskFile::Options wanted = options(16 * kPage);
  wanted.checksum = true;
  DiskFile file(wanted);
  const AlignedMemory written = random_memory(16 * kPage, 9);
  file.write(0, written.data(), written.nbytes()).wait();
  flip_bit(temp / "states", 9 * kPage + 100, 3);
  AlignedMemory read(16 * kPage);
  EXPECT_EQ(message_of([&] { file.read(0, read.data(), read.nbytes()).wait(); }),
            "[disk " + (temp / "states") +
                "] read of 16384 bytes at 32768 failed: the page at 36864 (block 2) is not what was written there. The "
                "disk, or who else writes to it, damages data: resume from a checkpoint on another disk.");
  file.read(0, read.data(), 9 * kPage).wait();
  file.read(10 * kPage, read.data(), 6 * kPage).wait();
  file.write(9 * kPage, written.data(), kPage).wait();
  file.read(0, read.data(), read.nbytes()).wait();
}

TEST_P(RealDiskFile, WhatIsNotAlignedBreaksAPromise) {
  DiskFile file(options(8 * kPage));
  AlignedMemory memory(8 * kPage);
  EXPECT_THROW((void)file.read(512, memory.data(), kPage), BrokenPromise);
  EXPECT_THROW((void)file.read(0, memory.data() + 512, kPage), BrokenPromise);
  EXPECT_THROW((void)file.write(0, memory.data(), 100), BrokenPromise);
  EXPECT_THROW((void)file.write(8 * kPage, memory.data(), kPage), BrokenPromise);
  EXPECT_THROW((void)file.read(7 * kPage, memory.data(), 2 * kPage), BrokenPromise);
}

TEST_P(RealDiskFile, SaysHowItWorks) {
  DiskFile::Options wanted = options(kPage);
  wanted.checksum = true;
  wanted.queue_depth = 3;
  const DiskFile file(wanted);
  EXPECT_THAT(file.description(),
              StartsWith(GetParam() ? "io_uring, 3 in flight, "
                                    : "3 threads with pread and pwrite (io_uring is turned off), "));
  EXPECT_THAT(file.description(), HasSubstr(file.is_direct() ? ", O_DIRECT, checksums" : ", through the page cache ("));
}

// A file whose requests meet with faults.
class FaultyDiskFile : public ::testing::Test {
 protected:
  std::unique_ptr<DiskFile> open(FaultPlan plan, size_t reorder = 1, bool checksum = true) {
    DiskFile::Options wanted{.folder = temp.path(), .name = "states", .nbytes = 32 * kPage, .block_nbytes = kBlock};
    wanted.checksum = checksum;
    wanted.make_io = [=](int depth) { return std::make_unique<FaultyIo>(depth, plan, reorder); };
    return std::make_unique<DiskFile>(wanted);
  }
  void expect_round_trip(DiskFile& file) {
    AlignedMemory read(written.nbytes());
    file.write(0, written.data(), written.nbytes()).wait();
    file.read(0, read.data(), read.nbytes()).wait();
    EXPECT_TRUE(same_bytes(written, read));
  }
  const TempFolder temp;
  const AlignedMemory written = random_memory(32 * kPage, 10);
};

TEST_F(FaultyDiskFile, ShortTransfersAreContinued) {
  for (const size_t at_most : {kPage, kPage + 1, 2 * kPage + 4000, 4 * kPage - 1}) {
    int requests = 0;
    {
      const auto file = open([&, at_most](const BlockRequest& request, int) {
        ++requests;
        EXPECT_EQ(request.offset % kPage, 0u);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(request.memory) % kPage, 0u);
        EXPECT_EQ(request.nbytes % kPage, 0u);
        return Fault{.at_most = at_most};
      });
      expect_round_trip(*file);
      EXPECT_EQ(file->counters().read_nbytes, written.nbytes());
    }
    EXPECT_GT(requests, 2 * 8) << at_most;
  }
}

TEST_F(FaultyDiskFile, InterruptedOnesAreTriedAgain) {
  const auto file = open([](const BlockRequest&, int index) {
    return Fault{.error_number = index % 3 == 0 ? EINTR : index % 3 == 1 ? EAGAIN : 0};
  });
  expect_round_trip(*file);
}

TEST_F(FaultyDiskFile, ABlockThatNeverMovesEnds) {
  const auto file = open(
      [](const BlockRequest& request, int) { return Fault{.at_most = request.offset == 2 * kBlock ? 100 : SIZE_MAX}; });
  const std::string stuck =
      " of 16384 bytes at 32768 failed: no bytes were moved in 16 tries. The disk may be failing: "
      "look at the kernel's log, and resume from a checkpoint on another one.";
  const std::string place = "[disk " + (temp / "states") + "] ";
  EXPECT_EQ(message_of([&] { file->write(0, written.data(), written.nbytes()).wait(); }), place + "write" + stuck);
  AlignedMemory read(written.nbytes());
  EXPECT_EQ(message_of([&] { file->read(0, read.data(), read.nbytes()).wait(); }), place + "read" + stuck);
}

TEST_F(FaultyDiskFile, AnErrorNamesTheFirstBlockAndLaterTransfersWork) {
  bool failing = true;
  const auto file = open([&](const BlockRequest& request,
                             int) { return Fault{.error_number = failing && request.offset >= 3 * kBlock ? EIO : 0}; },
                         4);
  DiskFile::Transfer write = file->write(0, written.data(), written.nbytes());
  DiskFile::Transfer fine = file->write(0, written.data(), kBlock);
  const std::string expected =
      "[disk " + (temp / "states") +
      "] write of 16384 bytes at 49152 failed: Input/output error (EIO). The disk may be failing: "
      "look at the kernel's log, and resume from a checkpoint on another one.";
  EXPECT_EQ(message_of([&] { write.wait(); }), expected);
  EXPECT_EQ(message_of([&] { write.wait(); }), expected) << "asked again, it says it again";
  fine.wait();
  AlignedMemory read(written.nbytes());
  EXPECT_THAT(message_of([&] { file->read(0, read.data(), read.nbytes()).wait(); }),
              HasSubstr("read of 16384 bytes at 49152 failed: Input/output error (EIO)"));
  failing = false;  // nothing is in flight
  expect_round_trip(*file);
}

TEST_F(FaultyDiskFile, AnErrorAfterAShortPartIsNotLost) {
  const auto file = open([](const BlockRequest& request, int) {
    if (request.offset % kBlock != 0) return Fault{.error_number = EIO};
    return Fault{.at_most = 2 * kPage};
  });
  EXPECT_THAT(message_of([&] { file->write(0, written.data(), kBlock).wait(); }),
              HasSubstr("write of 16384 bytes at 0 failed: Input/output error (EIO)"));
}

TEST_F(FaultyDiskFile, AFullDiskSaysWhatToDo) {
  const auto file = open([](const BlockRequest& request, int) {
    return Fault{.error_number = request.kind == BlockRequest::Kind::write ? ENOSPC : 0};
  });
  EXPECT_EQ(
      message_of([&] { file->write(kBlock, written.data(), kPage).wait(); }),
      "[disk " + (temp / "states") +
          "] write of 4096 bytes at 16384 failed: No space left on device (ENOSPC). Free some space there, or set "
          "nvme_path to another disk.");
}

TEST_F(FaultyDiskFile, CompletionsInAnyOrderGiveTheSameBytes) {
  for (const size_t reorder : {2, 3, 8}) {
    const auto file = open([](const BlockRequest& request, int) { return Fault{.at_most = 3 * kPage}; }, reorder);
    expect_round_trip(*file);
  }
}

TEST_F(FaultyDiskFile, ASlowDiskIsWaitedFor) {
  const auto file = open([](const BlockRequest& request, int) {
    return Fault{.delay = std::chrono::milliseconds(request.offset == kBlock ? 200 : 0)};
  });
  DiskFile::Transfer slow = file->write(kBlock, written.data(), kBlock);
  EXPECT_FALSE(slow.done());
  EXPECT_EQ(file->counters().waited_seconds, 0);
  WaitLog::of_process().begin();
  slow.wait();
  EXPECT_TRUE(slow.done());
  EXPECT_GT(file->counters().waited_seconds, 0);
  const double waited = file->counters().waited_seconds;
  slow.wait();
  EXPECT_EQ(file->counters().waited_seconds, waited);
  const std::vector<Wait> waits = WaitLog::of_process().end();
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0].what, "disk");
  EXPECT_NEAR(static_cast<double>(waits[0].end_ns - waits[0].begin_ns) * 1e-9, waited, 1e-4);
}

TEST_F(FaultyDiskFile, ItsEndWaitsForContinuedRequests) {
  AlignedMemory read(written.nbytes());
  DiskFile::Transfer transfer;
  {
    const auto file =
        open([](const BlockRequest&, int) { return Fault{.at_most = kPage, .delay = std::chrono::milliseconds(1)}; });
    transfer = file->read(0, read.data(), read.nbytes());
  }
  EXPECT_TRUE(transfer.done());
}

TEST_F(FaultyDiskFile, BytesThatChangeOnTheirWayAreFound) {
  // The disk says that all was written, and wrote less.
  std::optional<DiskFile> file;
  file.emplace(DiskFile::Options{.folder = temp.path(),
                                 .name = "lying",
                                 .nbytes = kBlock,
                                 .block_nbytes = kBlock,
                                 .checksum = true,
                                 .make_io = [](int depth) {
                                   class LyingIo final : public BlockIo {
                                    public:
                                     explicit LyingIo(int depth) : inner_(make_thread_io(depth)) {}
                                     void start(BlockRequest request) override {
                                       if (request.kind == BlockRequest::Kind::write) {
                                         const auto claimed = static_cast<int64_t>(request.nbytes);
                                         request.nbytes -= kPage;
                                         request.done = [claimed, done = request.done](int64_t) { done(claimed); };
                                       }
                                       inner_->start(std::move(request));
                                     }
                                     bool register_memory(std::byte*, size_t) override { return false; }
                                     std::string description() const override { return "lies"; }

                                    private:
                                     std::unique_ptr<BlockIo> inner_;
                                   };
                                   return std::make_unique<LyingIo>(depth);
                                 }});
  file->write(0, written.data(), kBlock).wait();
  AlignedMemory read(kBlock);
  EXPECT_THAT(message_of([&] { file->read(0, read.data(), kBlock).wait(); }), HasSubstr("the page at 12288 (block 0)"));
}

}  // namespace
}  // namespace shoal::testing
