// The exactness matrix: at each world size every stage, with overlap on or off and recompute on or off, gives the same
// bits of loss, norm and weights.
#include <gtest/gtest.h>

#include "test_size.h"
#include "training/exactness.h"

namespace shoal::testing {
namespace {

class Exactness : public ::testing::TestWithParam<Cell> {};

TEST_P(Exactness, StagesOverlapAndRecomputeGiveTheSameBits) { expect_same_bits_in(GetParam(), at::kCPU); }

std::vector<Cell> cells() {
  if (tests_are_small()) {
    return {{1, Precision::bf16, 3, true},
            {2, Precision::fp16, 1, true},
            {3, Precision::bf16, 3, true},
            {3, Precision::fp32, 1, false}};
  }
  return every_cell(tests_are_whole() ? std::vector<int>{1, 2, 3, 4} : std::vector<int>{1, 2, 3});
}

INSTANTIATE_TEST_SUITE_P(Matrix, Exactness, ::testing::ValuesIn(cells()), cell_name);

// The comparison above must be able to fail: a reduction in another rank order gives other bits.
TEST(ExactnessCheck, ASwappedRankOrderInTheReductionIsSeen) {
  RunOptions options;
  options.dropout = 0;  // random numbers belong to the rank; only the order of the sum may differ here
  options.skip_units = false;
  const int world = 3;
  const std::vector<RunResult> straight = train_on_threads(world, options);
  const std::vector<RunResult> swapped = on_threads<RunResult>(world, [&](Group& group) {
    RunOptions mirrored = options;
    mirrored.data_rank = world - 1 - group.rank();
    return train(group, mirrored);
  });
  EXPECT_EQ(straight[0].losses[0], swapped[2].losses[0]);  // the same data and weights at the start
  EXPECT_NE(straight[0].weights, swapped[2].weights);
}

// Without `reproducible`, stages 0 and 1 accumulate before they reduce, and agree with each other.
TEST(Exactness, StagesThatAccumulateFirstAgreeWithEachOther) {
  RunOptions options;
  options.accumulation = 3;
  options.reproducible = false;
  options.precision = Precision::bf16;
  if (!tests_are_whole()) options.steps = 10;
  const std::vector<RunResult> stage0 = train_on_threads(2, options);
  options.stage = 1;
  EXPECT_TRUE(train_on_threads(2, options)[0] == stage0[0]);
  options.stage = 2;
  const std::vector<RunResult> stage2 = train_on_threads(2, options);
  options.stage = 3;
  EXPECT_TRUE(train_on_threads(2, options)[0] == stage2[0]);
}

TEST(Exactness, EveryOptimizerGivesTheSameBitsAtEveryStage) {
  for (const OptimizerRow& row : kOptimizers) {
    const OptimizerKind kind = row.kind;
    if (kind == OptimizerKind::adamw) continue;  // as all other tests have it
    RunOptions options;
    options.optimizer = kind;
    options.precision = Precision::bf16;
    if (!tests_are_whole()) options.steps = 10;
    const RunResult expected = train_on_threads(2, options)[0];
    for (int stage = 1; stage <= 3; ++stage) {
      options.stage = stage;
      EXPECT_TRUE(train_on_threads(2, options)[0] == expected) << "optimizer " << row.name << " stage " << stage;
    }
  }
}

}  // namespace
}  // namespace shoal::testing
