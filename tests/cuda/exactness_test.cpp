// The exactness matrix on one GPU, ranks as threads: at each world size every stage, with overlap on or off and
// recompute on or off, gives the same bits of loss, norm and weights.
#include <fmt/format.h>

#include "cuda/torch_gpu.h"
#include "training/matrix_run.h"

namespace shoal::testing {
namespace {

struct Cell {
  int world;
  Precision precision;
  int64_t accumulation;
  bool clip;
};

class GpuExactness : public ::testing::TestWithParam<Cell> {};

TEST_P(GpuExactness, StagesOverlapAndRecomputeGiveTheSameBits) {
  SHOAL_NEEDS_GPU();
  const Cell cell = GetParam();
  RunOptions options;
  options.device = gpu();
  options.precision = cell.precision;
  options.accumulation = cell.accumulation;
  options.clip = cell.clip;
  if (small_grid()) options.steps = 10;
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
        if (small_grid() && (recompute == overlap) != (stage % 2 == 0)) continue;
        options.stage = stage;
        options.overlap = overlap;
        options.recompute = recompute;
        const std::vector<RunResult> got = train_on_threads(cell.world, options);
        const std::string what = fmt::format("stage {} overlap {} recompute {}", stage, overlap, recompute);
        for (int rank = 0; rank < cell.world; ++rank) {
          EXPECT_EQ(RunResult::bits(expected[rank].losses), RunResult::bits(got[rank].losses)) << what;
          EXPECT_EQ(RunResult::bits(expected[rank].norms), RunResult::bits(got[rank].norms)) << what;
          EXPECT_TRUE(expected[rank].weights == got[rank].weights) << what << " rank " << rank;
          EXPECT_EQ(expected[rank].applied, got[rank].applied) << what;
          if (HasFailure()) return;
        }
      }
    }
  }
}

std::vector<Cell> cells() {
  if (small_grid()) return {{1, Precision::bf16, 3, true}, {2, Precision::fp16, 1, true}};
  std::vector<Cell> all;
  for (const int world : {1, 2, 4}) {
    for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
      for (const int64_t accumulation : {1, 3}) {
        for (const bool clip : {true, false}) all.push_back({world, precision, accumulation, clip});
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Matrix, GpuExactness, ::testing::ValuesIn(cells()),
                         [](const ::testing::TestParamInfo<Cell>& info) {
                           const Cell& cell = info.param;
                           const char* precision = cell.precision == Precision::fp32   ? "fp32"
                                                   : cell.precision == Precision::bf16 ? "bf16"
                                                                                       : "fp16";
                           return fmt::format("world{}_{}_accumulate{}_{}", cell.world, precision, cell.accumulation,
                                              cell.clip ? "clip" : "noclip");
                         });

TEST(GpuTraining, EveryOptimizerTrainsAsOnTheCpu) {
  SHOAL_NEEDS_GPU();
  for (const OptimizerKind kind :
       {OptimizerKind::adamw, OptimizerKind::adam, OptimizerKind::sgd, OptimizerKind::adagrad, OptimizerKind::lion}) {
    RunOptions options;
    options.stage = 3;
    options.optimizer = kind;
    options.dropout = 0;  // the two devices draw different random numbers
    options.lr = kind == OptimizerKind::lion ? 3e-4 : 3e-3;
    const RunResult on_cpu = train_on_threads(2, options)[0];
    options.device = gpu();
    const RunResult on_gpu = train_on_threads(2, options)[0];
    ASSERT_EQ(on_cpu.losses.size(), on_gpu.losses.size());
    for (size_t step = 0; step < on_cpu.losses.size(); ++step) {
      if (!std::isfinite(on_cpu.losses[step])) continue;
      EXPECT_NEAR(on_gpu.losses[step], on_cpu.losses[step], 1e-4 * std::abs(on_cpu.losses[step]))
          << "optimizer " << static_cast<int>(kind) << " step " << step;
    }
  }
}

}  // namespace
}  // namespace shoal::testing
