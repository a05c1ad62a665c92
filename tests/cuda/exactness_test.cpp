// The exactness matrix on one GPU, ranks as threads: at each world size every stage, with overlap on or off and
// recompute on or off, gives the same bits of loss, norm and weights.
#include <cmath>

#include "cuda/torch_gpu.h"
#include "test_size.h"
#include "training/exactness.h"
#include "unit/kernels/textbook.h"

namespace shoal::testing {
namespace {

class GpuExactness : public ::testing::TestWithParam<Cell> {};

TEST_P(GpuExactness, StagesOverlapAndRecomputeGiveTheSameBits) {
  SHOAL_NEEDS_GPU();
  expect_same_bits_in(GetParam(), gpu());
}

std::vector<Cell> cells() {
  if (tests_are_small()) return {{1, Precision::bf16, 3, true}, {2, Precision::fp16, 1, true}};
  return every_cell({1, 2, 4});
}

INSTANTIATE_TEST_SUITE_P(Matrix, GpuExactness, ::testing::ValuesIn(cells()), cell_name);

TEST(GpuTraining, EveryOptimizerTrainsAsOnTheCpu) {
  SHOAL_NEEDS_GPU();
  for (const OptimizerRow& row : kOptimizers) {
    const OptimizerKind kind = row.kind;
    RunOptions options;
    options.stage = 3;
    options.optimizer = kind;
    options.dropout = 0;  // the two devices draw different random numbers
    kernels::EveryStep::call_for(kind, [&]<typename Step>(Step) { options.lr = kernels::kSteady<Step> ? 3e-4 : 3e-3; });
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
