// The exactness matrix: at each world size every stage, with overlap on or off and recompute on or off, gives the same
// bits of loss, norm and weights.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "training/matrix_run.h"

namespace shoal::testing {
namespace {

bool small() {
  const char* size = std::getenv("SHOAL_TEST_SIZE");
  return size != nullptr && std::string(size) == "small";
}

struct Cell {
  int world;
  Precision precision;
  int64_t accumulation;
  bool clip;
};

class Exactness : public ::testing::TestWithParam<Cell> {};

std::string describe(const RunOptions& options) {
  return fmt::format("stage {} overlap {} recompute {}", options.stage, options.overlap, options.recompute);
}

TEST_P(Exactness, StagesOverlapAndRecomputeGiveTheSameBits) {
  const Cell cell = GetParam();
  RunOptions options;
  options.precision = cell.precision;
  options.accumulation = cell.accumulation;
  options.clip = cell.clip;
  if (small()) options.steps = 10;
  options.overlap = false;
  const std::vector<RunResult> expected = train_on_threads(cell.world, options);
  for (int rank = 0; rank < cell.world; ++rank) {
    EXPECT_EQ(expected[rank].weights, expected[0].weights) << "the ranks of one run have different weights";
    EXPECT_FALSE(expected[rank].applied[7]) << "the forced overflow was applied";
    EXPECT_TRUE(expected[rank].applied[8]);
  }
  for (const bool recompute : {false, true}) {
    for (const bool overlap : {false, true}) {
      for (int stage = 0; stage <= 3; ++stage) {
        if (small() && (recompute == overlap) != (stage % 2 == 0)) continue;  // each stage with both, in two runs
        options.stage = stage;
        options.overlap = overlap;
        options.recompute = recompute;
        const std::vector<RunResult> got = train_on_threads(cell.world, options);
        for (int rank = 0; rank < cell.world; ++rank) {
          const RunResult& a = expected[rank];
          const RunResult& b = got[rank];
          EXPECT_EQ(RunResult::bits(a.losses), RunResult::bits(b.losses)) << describe(options) << " rank " << rank;
          EXPECT_EQ(RunResult::bits(a.norms), RunResult::bits(b.norms)) << describe(options) << " rank " << rank;
          EXPECT_TRUE(a.weights == b.weights) << describe(options) << " rank " << rank;
          EXPECT_EQ(a.applied, b.applied) << describe(options) << " rank " << rank;
          if (HasFailure()) return;
        }
      }
    }
  }
}

std::vector<Cell> cells() {
  if (small()) {
    return {{1, Precision::bf16, 3, true},
            {2, Precision::fp16, 1, true},
            {3, Precision::bf16, 3, true},
            {3, Precision::fp32, 1, false}};
  }
  std::vector<Cell> all;
  for (const int world : {1, 2, 3, 4}) {
    for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
      for (const int64_t accumulation : {1, 3}) {
        for (const bool clip : {true, false}) {
          all.push_back({world, precision, accumulation, clip});
        }
      }
    }
  }
  return all;
}

std::string cell_name(const ::testing::TestParamInfo<Cell>& info) {
  const Cell& cell = info.param;
  const char* precision = cell.precision == Precision::fp32   ? "fp32"
                          : cell.precision == Precision::bf16 ? "bf16"
                                                              : "fp16";
  return fmt::format("world{}_{}_accumulate{}_{}", cell.world, precision, cell.accumulation,
                     cell.clip ? "clip" : "noclip");
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
  if (small()) options.steps = 10;
  const std::vector<RunResult> stage0 = train_on_threads(2, options);
  options.stage = 1;
  EXPECT_TRUE(train_on_threads(2, options)[0] == stage0[0]);
  options.stage = 2;
  const std::vector<RunResult> stage2 = train_on_threads(2, options);
  options.stage = 3;
  EXPECT_TRUE(train_on_threads(2, options)[0] == stage2[0]);
}

TEST(Exactness, EveryOptimizerGivesTheSameBitsAtEveryStage) {
  for (const OptimizerKind kind :
       {OptimizerKind::adam, OptimizerKind::sgd, OptimizerKind::adagrad, OptimizerKind::lion}) {
    RunOptions options;
    options.optimizer = kind;
    options.precision = Precision::bf16;
    if (small()) options.steps = 10;
    const RunResult expected = train_on_threads(2, options)[0];
    for (int stage = 1; stage <= 3; ++stage) {
      options.stage = stage;
      EXPECT_TRUE(train_on_threads(2, options)[0] == expected)
          << "optimizer " << static_cast<int>(kind) << " stage " << stage;
    }
  }
}

}  // namespace
}  // namespace shoal::testing
