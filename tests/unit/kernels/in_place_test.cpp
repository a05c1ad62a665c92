#include "kernels/in_place.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "layout/wire.h"

namespace shoal::kernels {
namespace {

constexpr int64_t kAtOnce = 128;

// Bytes [begin, end).
struct Bytes {
  size_t begin = 0, end = 0;
  bool meets(const Bytes& other) const { return begin < other.end && other.begin < end; }
};

TEST(InPlace, NoSpanWritesWhatItOrALaterOneReads) {
  for (const int bits : {8, 4}) {
    for (const size_t element : {size_t{2}, size_t{4}}) {
      const size_t narrow = block_nbytes(bits), wide = kBlockNumel * element;
      for (const int64_t blocks : {0, 1, 127, 128, 129, 247, 248, 249, 1000, 262144, 1 << 25}) {
        int64_t next = 0;
        const auto whole = static_cast<size_t>(blocks);
        for (const BlockSpan& span : spans_in_place(blocks, narrow, wide, kAtOnce)) {
          ASSERT_EQ(span.begin, next) << "each block once, in order";
          ASSERT_GT(span.end, span.begin);
          ASSERT_EQ(span.at_once, span.begin == 0);
          ASSERT_TRUE(!span.at_once || span.end <= kAtOnce);
          next = span.end;
          const auto begin = static_cast<size_t>(span.begin), end = static_cast<size_t>(span.end);
          const Bytes blocks_of{begin * narrow, end * narrow}, elements_of{begin * wide, end * wide};
          // Made at the front: elements from here on are still read.
          ASSERT_FALSE(blocks_of.meets({span.at_once ? elements_of.end : elements_of.begin, whole * wide}));
          // Back again, from the last span to the first, with both counted from the end: blocks up to here are read.
          ASSERT_FALSE(elements_of.meets({0, span.at_once ? blocks_of.begin : blocks_of.end}));
        }
        ASSERT_EQ(next, blocks);
      }
    }
  }
}

// A launch each.
TEST(InPlace, ThereAreFewSpans) {
  EXPECT_EQ(spans_in_place(1 << 20, block_nbytes(8), 256, kAtOnce).size(), 15u) << "of 256 MiB in bf16";
  EXPECT_EQ(spans_in_place(1 << 20, block_nbytes(8), 512, kAtOnce).size(), 8u);
  EXPECT_EQ(spans_in_place(1 << 20, block_nbytes(4), 512, kAtOnce).size(), 6u);
  EXPECT_EQ(spans_in_place(100, block_nbytes(8), 256, kAtOnce), (std::vector<BlockSpan>{{0, 100, true}}));
}

TEST(InPlace, BlocksThatAreNoShorterThanTheirElementsAreABrokenPromise) {
  EXPECT_THROW(spans_in_place(1, 132, 128, kAtOnce), BrokenPromise);
}

}  // namespace
}  // namespace shoal::kernels
