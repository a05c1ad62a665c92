// What the ordered sums promise, on examples small enough to see.
#include <gtest/gtest.h>

#include "unit/kernels/awkward.h"

namespace shoal::kernels {
namespace {

const ReduceKernels& reference() { return kernels_of(Isa::reference).reduce; }

float fold_of(std::vector<float> values, OrderedFold args, float before = 0) {
  std::vector<const void*> sources;
  for (const float& value : values) sources.push_back(&value);
  args.sources = sources.data();
  args.source_count = static_cast<int>(sources.size());
  args.out = &before;
  args.numel = 1;
  reference().ordered_fold(args);
  return before;
}

TEST(ReduceReference, AddsInTheOrderGiven) {
  EXPECT_EQ(fold_of({1e8f, 1.0f, -1e8f}, {}), 0.0f);  // 1 is lost beside 1e8
  EXPECT_EQ(fold_of({1e8f, -1e8f, 1.0f}, {}), 1.0f);
}

TEST(ReduceReference, ScalesTheSum) {
  EXPECT_EQ(fold_of({2.0f, 4.0f}, {.post = 3.0f}), 18.0f);
  EXPECT_EQ(fold_of({3e38f, 3e38f}, {.post = 0.5f}), INFINITY);
}

TEST(ReduceReference, GoesOnFromWhatIsThere) {
  EXPECT_EQ(fold_of({2.0f, 4.0f}, {.carry = 1.0f, .post = 0.5f}, 10.0f), 8.0f);
  EXPECT_EQ(fold_of({2.0f, 4.0f}, {.carry = 2.0f, .post = 0.5f}, 10.0f), 13.0f) << "from a mean of two";
  EXPECT_EQ(fold_of({2.0f, 4.0f}, {.post = 0.5f}, NAN), 3.0f) << "what is there is not read";
  EXPECT_EQ(fold_of({1.0f, -1e8f}, {.carry = 1.0f}, 1e8f), 0.0f) << "what is there comes first";
}

TEST(ReduceReference, StoresTheFirstSource) {
  EXPECT_TRUE(std::signbit(fold_of({-0.0f}, {})));
  EXPECT_FALSE(std::signbit(fold_of({-0.0f, 0.0f}, {})));
}

TEST(ReduceReference, RoundsTheMeanInAWiderPlace) {
  EXPECT_EQ(fold_of({1.0f, 0x1p-7f, 0x1p-9f}, {.rounding = DType::bf16}), 1.0f + 0x1p-7f);
  EXPECT_EQ(fold_of({1.0f, 0x1p-7f, 0x1p-9f}, {}), 1.0f + 0x1p-7f + 0x1p-9f);
}

TEST(ReduceReference, FoldsGroupsByThemselves) {
  // (1e8 + 1) + (-1e8 + 1): each 1 is lost. One group: the last 1 stays.
  EXPECT_EQ(fold_of({1e8f, 1.0f, -1e8f, 1.0f}, {.group = 2}), 0.0f);
  EXPECT_EQ(fold_of({1e8f, 1.0f, -1e8f, 1.0f}, {}), 1.0f);
  EXPECT_EQ(fold_of({1e8f, 1.0f, -1e8f, 1.0f}, {.group = 4}), 1.0f);
}

TEST(ReduceReference, AGroupStaysOpenFromCallToCall) {
  float open = NAN;
  OrderedFold args{.group = 3, .open = &open, .closes = false};
  EXPECT_TRUE(std::isnan(fold_of({1.0f, 2.0f}, args, NAN))) << "no group is closed, and nothing written";
  EXPECT_EQ(open, 3.0f);
  args.before = 2;
  EXPECT_EQ(fold_of({4.0f, 5.0f}, args, NAN), 7.0f);
  EXPECT_EQ(open, 5.0f);
  args.before = 1;
  args.carry = 1;
  args.closes = true;
  args.post = 0.5f;
  EXPECT_EQ(fold_of({6.0f}, args, 7.0f), 9.0f);
}

TEST(ReduceReference, RoundsOnceToTheOutputDtype) {
  // 1 + 2^-9 + 2^-9 is 1 + 2^-8, a tie that goes to 1 in bf16; rounding after each addition would give 1 as well, but
  // 1 + 3 * 2^-9 lies above the tie and must become 1 + 2^-7.
  const float small = 0x1p-9f;
  const uint16_t one = to_bf16(1.0f), part = to_bf16(small);
  const void* sources[] = {&one, &part, &part, &part};
  uint16_t out = 0;
  reference().ordered_fold({.sources = sources,
                            .source_count = 4,
                            .source_dtype = DType::bf16,
                            .out = &out,
                            .out_dtype = DType::bf16,
                            .rounding = DType::bf16,
                            .numel = 1});
  EXPECT_EQ(from_bf16(out), 1.0f + 0x1p-7f);
}

TEST(ReduceReference, SquaresGoToEightLanesThatAreAddedByHalves) {
  // Lane 0 holds 2^54, whose neighbour is 4 away; the others 1 each. Lane 4 meets it alone and is lost, then lanes 2
  // and 6 as a 2, a tie that is lost too, and the last four as a 4.
  std::vector<float> values(8, 1.0f);
  values[0] = 0x1p27f;
  double sum = 0;
  reference().sum_squares(values.data(), DType::f32, 8, 0, &sum);
  EXPECT_EQ(sum, 0x1p54 + 4);
  // The ones of three rounds meet in lane 4 first; each alone would be lost.
  values.assign(24, 0.0f);
  values[0] = 0x1p27f;
  values[4] = values[12] = values[20] = 1.0f;
  reference().sum_squares(values.data(), DType::f32, 24, 0, &sum);
  EXPECT_EQ(sum, 0x1p54 + 4);
}

TEST(ReduceReference, RunsOfABlockAreAddedAsATree) {
  // Run 0 holds 2^54. Run 1 has a 1, which is lost beside it; runs 2 and 3 have 2 each and are a 4 when they meet it.
  std::vector<float> values(kNormBlock, 0.0f);
  values[0] = 0x1p27f;
  values[kRunNumel] = 1.0f;
  values[2 * kRunNumel] = values[2 * kRunNumel + 1] = 1.0f;
  values[3 * kRunNumel + 7] = values[3 * kRunNumel + 9] = 1.0f;
  double sum = 0;
  reference().sum_squares(values.data(), DType::f32, kNormBlock, 0, &sum);
  EXPECT_EQ(sum, 0x1p54 + 4);
}

TEST(ReduceReference, OneSumForEachPieceOfTheRange) {
  const int64_t numel = 2 * kNormBlock + 5;
  const std::vector<float> values(numel, 2.0f);
  double sums[4] = {-1, -1, -1, -1};
  reference().sum_squares(values.data(), DType::f32, numel, 64, sums);
  EXPECT_EQ(std::vector<double>(sums, sums + 4), (std::vector<double>{4.0 * kNormBlock, 4.0 * kNormBlock, 20, -1}));
  // From run 29 on: one run and a pair before the block, then the block, then 29 of the next one: 16, 8, 4, and one.
  double pieces[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
  reference().sum_squares(values.data(), DType::f32, 2 * kNormBlock, 29, pieces);
  std::vector<double> expected;
  for (const int runs : {1, 2, 32, 16, 8, 4, 1}) expected.push_back(4.0 * kRunNumel * runs);
  expected.push_back(-1);
  EXPECT_EQ(std::vector<double>(pieces, pieces + 8), expected);
}

}  // namespace
}  // namespace shoal::kernels
