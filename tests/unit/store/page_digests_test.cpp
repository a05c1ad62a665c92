#include "store/page_digests.h"

#include <gtest/gtest.h>

#include "unit/store/aligned_memory.h"

namespace shoal::testing {
namespace {

constexpr size_t kPage = PageDigests::kPageNbytes;

TEST(PageDigests, ANewFileIsZeros) {
  const PageDigests digests(4 * kPage);
  const AlignedMemory zeros(4 * kPage);
  EXPECT_EQ(digests.first_difference(0, zeros.data(), 4 * kPage), std::nullopt);
  EXPECT_EQ(digests.first_difference(kPage, random_memory(kPage, 1).data(), kPage), kPage);
}

TEST(PageDigests, AReadMayBeCutElsewhereThanTheWrite) {
  PageDigests digests(8 * kPage);
  const AlignedMemory memory = random_memory(8 * kPage, 2);
  digests.keep(0, memory.data(), 5 * kPage);
  digests.keep(5 * kPage, memory.data() + 5 * kPage, 3 * kPage);
  for (size_t begin = 0; begin < 8; ++begin) {
    for (size_t end = begin; end <= 8; ++end) {
      EXPECT_EQ(digests.first_difference(begin * kPage, memory.data() + begin * kPage, (end - begin) * kPage),
                std::nullopt);
    }
  }
}

TEST(PageDigests, NamesTheFirstPageThatDiffers) {
  PageDigests digests(8 * kPage);
  const AlignedMemory memory = random_memory(8 * kPage, 3);
  digests.keep(0, memory.data(), 8 * kPage);
  memory.data()[3 * kPage + 4095] ^= std::byte{1};
  memory.data()[6 * kPage] ^= std::byte{128};
  EXPECT_EQ(digests.first_difference(0, memory.data(), 8 * kPage), 3 * kPage);
  EXPECT_EQ(digests.first_difference(4 * kPage, memory.data() + 4 * kPage, 4 * kPage), 6 * kPage);
  EXPECT_EQ(digests.first_difference(0, memory.data(), 3 * kPage), std::nullopt);
}

}  // namespace
}  // namespace shoal::testing
