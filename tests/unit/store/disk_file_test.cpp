#include "store/disk_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

#include "message_of.h"
#include "shoal/error.h"
#include "temp_folder.h"
#include "unit/store/aligned_memory.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;
constexpr size_t kPage = DiskFile::kAlignment;

// Both real implementations; each case is a promise of both.
class RealDiskFile : public ::testing::TestWithParam<bool> {
 protected:
  DiskFile::Options options(size_t nbytes) const {
    return {
        .folder = temp.path(), .name = "states", .nbytes = nbytes, .block_nbytes = 4 * kPage, .use_uring = GetParam()};
  }
  const TempFolder temp;
};
INSTANTIATE_TEST_SUITE_P(Io, RealDiskFile, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "uring_or_fallback" : "threads"; });

TEST_P(RealDiskFile, ReadsBackWhatWasWritten) {
  for (const size_t pages : {1, 3, 4, 5, 64, 129}) {
    DiskFile file(options(pages * kPage));
    const AlignedMemory written = random_memory(pages * kPage, pages);
    AlignedMemory read(pages * kPage);
    file.write(0, written.data(), written.nbytes()).wait();
    file.read(0, read.data(), read.nbytes()).wait();
    EXPECT_EQ(std::memcmp(written.data(), read.data(), read.nbytes()), 0) << pages;
    EXPECT_EQ(file.counters().read_nbytes, pages * kPage);
    EXPECT_EQ(file.counters().written_nbytes, pages * kPage);
  }
}

TEST_P(RealDiskFile, ANewFileIsZerosAndIsGoneWithItsObject) {
  {
    DiskFile file(options(10'000));
    EXPECT_EQ(file.nbytes(), 3 * kPage);
    EXPECT_EQ(std::filesystem::file_size(temp / "states"), 3 * kPage);
    AlignedMemory memory = random_memory(3 * kPage, 1);
    file.read(0, memory.data(), memory.nbytes()).wait();
    EXPECT_TRUE(
        std::all_of(memory.data(), memory.data() + memory.nbytes(), [](std::byte b) { return b == std::byte{}; }));
  }
  EXPECT_FALSE(std::filesystem::exists(temp / "states"));
}

TEST_P(RealDiskFile, ManyTransfersInFlightKeepApart) {
  constexpr size_t kCount = 24, kEach = 7 * kPage;
  DiskFile::Options wanted = options(kCount * kEach);
  wanted.threads = 2;
  wanted.queue_depth = 3;
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
  EXPECT_EQ(std::memcmp(written.data(), read.data(), read.nbytes()), 0);
}

}  // namespace
}  // namespace shoal::testing
