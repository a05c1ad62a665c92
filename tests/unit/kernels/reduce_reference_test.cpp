// What the ordered sums promise, on examples small enough to see.
#include <gtest/gtest.h>

#include "unit/kernels/awkward.h"

namespace shoal::kernels {
namespace {

const ReduceKernels& reference() { return kernels_of(Isa::reference).reduce; }

float mean_of(std::vector<float> values, OrderedMean args, float before = 0) {
  std::vector<const void*> sources;
  for (const float& value : values) sources.push_back(&value);
  args.sources = sources.data();
  args.source_count = static_cast<int>(sources.size());
  args.out = &before;
  args.numel = 1;
  reference().ordered_mean(args);
  return before;
}

TEST(ReduceReference, AddsInTheOrderGiven) {
  EXPECT_EQ(mean_of({1e8f, 1.0f, -1e8f}, {}), 0.0f);  // 1 is lost beside 1e8
  EXPECT_EQ(mean_of({1e8f, -1e8f, 1.0f}, {}), 1.0f);
}

TEST(ReduceReference, ScalesBeforeAndAfter) {
  EXPECT_EQ(mean_of({2.0f, 4.0f}, {.pre = 0.5f, .post = 3.0f}), 9.0f);
  EXPECT_EQ(mean_of({3e38f, 3e38f}, {.post = 0.5f}), INFINITY);
  EXPECT_EQ(mean_of({3e38f, 3e38f}, {.pre = 0.5f}), 3e38f);
}

TEST(ReduceReference, AccumulatesOntoWhatIsThere) {
  EXPECT_EQ(mean_of({2.0f, 4.0f}, {.post = 0.5f, .accumulate = true}, 10.0f), 13.0f);
  EXPECT_EQ(mean_of({2.0f, 4.0f}, {.post = 0.5f, .accumulate = false}, NAN), 3.0f);
}

TEST(ReduceReference, RoundsOnceToTheOutputDtype) {
  // 1 + 2^-9 + 2^-9 is 1 + 2^-8, a tie that goes to 1 in bf16; rounding after each addition would give 1 as well, but
  // 1 + 3 * 2^-9 lies above the tie and must become 1 + 2^-7.
  const float small = 0x1p-9f;
  const uint16_t one = to_bf16(1.0f), part = to_bf16(small);
  const void* sources[] = {&one, &part, &part, &part};
  uint16_t out = 0;
  reference().ordered_mean({.sources = sources,
                            .source_count = 4,
                            .source_dtype = DType::bf16,
                            .out = &out,
                            .out_dtype = DType::bf16,
                            .numel = 1});
  EXPECT_EQ(from_bf16(out), 1.0f + 0x1p-7f);
}

TEST(ReduceReference, SquaresGoToEightLanesThatAreAddedInOrder) {
  // Lane 0 holds 2^106 and the others 1 each: added one after another, every 1 is lost beside it.
  std::vector<float> values(8, 1.0f);
  values[0] = 0x1p53f;
  double sum = 0;
  reference().sum_squares(values.data(), DType::f32, 8, &sum);
  EXPECT_EQ(sum, 0x1p106);
  // The ones of three rounds meet in lane 1 first; each alone would be lost beside 2^54, whose neighbour is 4 away.
  values.assign(24, 0.0f);
  values[0] = 0x1p27f;
  values[1] = values[9] = values[17] = 1.0f;
  reference().sum_squares(values.data(), DType::f32, 24, &sum);
  EXPECT_EQ(sum, 0x1p54 + 4);
}

TEST(ReduceReference, OneSumForEachBlock) {
  const int64_t numel = 2 * kNormBlock + 5;
  const std::vector<float> values(numel, 2.0f);
  double sums[4] = {-1, -1, -1, -1};
  reference().sum_squares(values.data(), DType::f32, numel, sums);
  EXPECT_EQ(sums[0], 4.0 * kNormBlock);
  EXPECT_EQ(sums[1], 4.0 * kNormBlock);
  EXPECT_EQ(sums[2], 20.0);
  EXPECT_EQ(sums[3], -1.0);
}

}  // namespace
}  // namespace shoal::kernels
