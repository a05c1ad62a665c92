#include "forecast/decoder_shape.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/stage_plans.h"
#include "unit/forecast/shapes.h"

namespace shoal::forecast {
namespace {

TEST(DecoderShape, CountsTheParametersOfLlama7B) {
  const DecoderShape shape = testing::llama_7b();
  EXPECT_EQ(testing::subject_of(shape).numel(), 6'738'415'616);
  EXPECT_EQ(shape.numel(), 6'738'415'616 - 65 * 4096) << "but for norms";
}

TEST(DecoderShape, ATiedHeadHasNoParametersOfItsOwnAndBorrows) {
  DecoderShape shape{.hidden = 8,
                     .layers = 1,
                     .heads = 1,
                     .q_width = 8,
                     .kv_width = 8,
                     .ffn = 32,
                     .gated = false,
                     .vocab = 10,
                     .tied = true};
  const auto units = units_of(shape, DType::f32);
  ASSERT_EQ(units.size(), 3u);
  EXPECT_EQ(units[2].borrows, std::vector<int>{0});
  EXPECT_EQ(shape.numel(), 80 + 4 * 64 + 2 * 8 * 32);
}

TEST(DecoderShape, CountsFlopsAsTheFieldDoes) {
  const DecoderShape shape = testing::llama_7b();
  const double matrices = 6.0 * static_cast<double>(shape.numel() - shape.head_numel());
  EXPECT_DOUBLE_EQ(model_flops_a_token(shape, 2048), matrices + 6.0 * 32 * 4096 * 2048);
}

TEST(DecoderShape, AFrozenMatrixCostsNoGradient) {
  DecoderShape shape = testing::llama_7b();
  const double trained = model_flops_a_token(shape, 2048);
  shape.adapter_numel = 1000;
  EXPECT_DOUBLE_EQ(trained - model_flops_a_token(shape, 2048),
                   2.0 * static_cast<double>(shape.numel() - shape.head_numel()) - 6000);
}

// Token t of 0, 1, ... sees t + 1 tokens, or its window: half of the sequence in the limit.
TEST(DecoderShape, CountsWhatLiesWithinWindows) {
  DecoderShape shape = testing::llama_7b();
  const double all = model_flops_a_token(shape, 32768), matrices = model_flops_a_token(shape, 0);
  shape.windows.assign(32, 4096);
  double exact = 0;
  for (int t = 0; t < 32768; ++t) exact += std::min(t + 0.5, 4096.0) / 32768;
  EXPECT_NEAR(shape.attended(32768), exact, 1e-3);
  EXPECT_NEAR((model_flops_a_token(shape, 32768) - matrices) / (all - matrices), exact / 16384, 1e-6);
  EXPECT_EQ(shape.attended(4096), 2048);
  EXPECT_EQ(shape.attended(1024), 512);
  for (size_t layer = 0; layer < 16; ++layer) shape.windows[layer] = 0;
  EXPECT_NEAR(shape.attended(32768), (exact + 16384) / 2, 1e-3);
}

}  // namespace
}  // namespace shoal::forecast
