#include "forecast/work.h"

#include <gtest/gtest.h>

#include "unit/forecast/shapes.h"

namespace shoal::forecast {
namespace {

using testing::llama_7b;

const Gpu& h200() { return find_cluster("H200")->gpu; }

TEST(Work, LargeProductsReachTheirShareAndSmallOnesLess) {
  const Calibration by;
  const double large = matmul_rate(by, h200(), 1 << 20, 1 << 20, 1 << 20, false);
  EXPECT_NEAR(large, 989e12 * by.matmul * power_share(by, 989e12, 700), 989e12 * 1e-3);
  EXPECT_LT(matmul_rate(by, h200(), 128, 4096, 4096, false), 0.5 * large);
  EXPECT_GT(matmul_rate(by, h200(), 128, 4096, 4096, false), 0.2 * large);
  EXPECT_GT(matmul_rate(by, h200(), 16384, 4096, 4096, true), 1.2 * matmul_rate(by, h200(), 16384, 4096, 4096, false));
  EXPECT_NEAR(matmul_rate(by, h200(), 16384, 4096, 4096, false, DType::f32) / 67e12, by.matmul, 0.15);
}

// bench/results/model-ops-h200-2026-11-18.md: the head of llama-1b, both ways, 9.65 ms; of llama-8b 78.7 ms.
TEST(Work, TheHeadTakesWhatWasMeasured) {
  const Workload work{.batch = 8, .time = 2048};
  const auto both = [](const UnitSeconds& seconds) { return seconds.forward + seconds.backward; };
  const DecoderShape small{.hidden = 2048, .layers = 1, .heads = 1, .ffn = 1, .vocab = 32000};
  EXPECT_NEAR(both(head_seconds(small, work, h200(), fitted_calibration())), 9.65e-3, 1.2e-3);
  const DecoderShape large{.hidden = 4096, .layers = 1, .heads = 1, .ffn = 1, .vocab = 128256};
  EXPECT_NEAR(both(head_seconds(large, work, h200(), fitted_calibration())), 78.7e-3, 9e-3);
}

TEST(Work, BackwardIsTwiceForwardAndRecomputeOneMore) {
  Workload work{.batch = 4, .time = 2048};
  const UnitSeconds none = block_seconds(llama_7b(), work, h200(), {});
  EXPECT_NEAR(none.backward / none.forward, 2.05, 0.1);
  work.full_recompute = 1;
  const UnitSeconds full = block_seconds(llama_7b(), work, h200(), {});
  EXPECT_DOUBLE_EQ(full.backward, none.backward + none.forward);
  work.full_recompute = 0;
  work.selective_recompute = 1;
  const UnitSeconds selective = block_seconds(llama_7b(), work, h200(), {});
  EXPECT_GT(selective.backward, none.backward);
  EXPECT_LT(selective.backward, none.backward * 1.05) << "no matrix product again";
}

TEST(Work, OtherKernelsAndLongerSamplesTakeLonger) {
  Workload work{.batch = 4, .time = 2048};
  const double fused = block_seconds(llama_7b(), work, h200(), {}).forward;
  work.kernels = Kernels::compiled;
  const double compiled = block_seconds(llama_7b(), work, h200(), {}).forward;
  work.kernels = Kernels::eager;
  EXPECT_LT(fused, compiled);
  EXPECT_LT(compiled, block_seconds(llama_7b(), work, h200(), {}).forward);
  work = {.batch = 1, .time = 8192};
  EXPECT_GT(block_seconds(llama_7b(), work, h200(), {}).forward, fused) << "attention";
}

TEST(Work, WindowsTakeLessOfLongSamplesAlone) {
  DecoderShape shape = llama_7b();
  const auto forward = [&](int64_t time) {
    return block_seconds(shape, {.batch = 32768 / time, .time = time}, h200(), {}).forward;
  };
  const double all_short = forward(2048), all_long = forward(32768);
  shape.windows.assign(32, 4096);
  EXPECT_EQ(forward(2048), all_short);
  EXPECT_LT(forward(32768), 0.6 * all_long);
}

TEST(Work, AnEmbeddingBlocksAndAHead) {
  const Workload work{.batch = 1, .time = 128};
  const std::vector<UnitSeconds> units = unit_seconds(llama_7b(), work, h200(), {});
  ASSERT_EQ(units.size(), 34u);
  EXPECT_LT(units[0].forward, units[1].forward);
  EXPECT_DOUBLE_EQ(units[1].forward, units[32].forward);
}

}  // namespace
}  // namespace shoal::forecast
