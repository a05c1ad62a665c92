#include "store/page_digests.h"

#include <gtest/gtest.h>

#include "unit/store/aligned_memory.h"

namespace shoal::testing {
namespace {

constexpr size_t kDigestPage = PageDigests::kPageNbytes;

TEST(PageDigests, ANewFileIsZeros) {
  const PageDigests digests(4 * kDigestPage);
  const AlignedMemory zeros(4 * kDigestPage);
  EXPECT_EQ(digests.first_difference(0, zeros.data(), 4 * kDigestPage), std::nullopt);
  EXPECT_EQ(digests.first_difference(kDigestPage, random_memory(kDigestPage, 1).data(), kDigestPage), kDigestPage);
}

TEST(PageDigests, AReadMayBeCutElsewhereThanTheWrite) {
  PageDigests digests(8 * kDigestPage);
  const AlignedMemory memory = random_memory(8 * kDigestPage, 2);
  digests.keep(0, memory.data(), 5 * kDigestPage);
  digests.keep(5 * kDigestPage, memory.data() + 5 * kDigestPage, 3 * kDigestPage);
  for (size_t begin = 0; begin < 8; ++begin) {
    for (size_t end = begin; end <= 8; ++end) {
      EXPECT_EQ(digests.first_difference(begin * kDigestPage, memory.data() + begin * kDigestPage,
                                         (end - begin) * kDigestPage),
                std::nullopt);
    }
  }
}

TEST(PageDigests, NamesTheFirstPageThatDiffers) {
  PageDigests digests(8 * kDigestPage);
  const AlignedMemory memory = random_memory(8 * kDigestPage, 3);
  digests.keep(0, memory.data(), 8 * kDigestPage);
  memory.data()[3 * kDigestPage + 4095] ^= std::byte{1};
  memory.data()[6 * kDigestPage] ^= std::byte{128};
  EXPECT_EQ(digests.first_difference(0, memory.data(), 8 * kDigestPage), 3 * kDigestPage);
  EXPECT_EQ(digests.first_difference(4 * kDigestPage, memory.data() + 4 * kDigestPage, 4 * kDigestPage),
            6 * kDigestPage);
  EXPECT_EQ(digests.first_difference(0, memory.data(), 3 * kDigestPage), std::nullopt);
}

}  // namespace
}  // namespace shoal::testing
