#include "forecast/decoder_shape.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace shoal::forecast
