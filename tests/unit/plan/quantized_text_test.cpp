#include "plan/quantized_text.h"

#include <gtest/gtest.h>

#include "plan/from_config.h"

namespace shoal {
namespace {

std::string text_of(const std::string& members, int world = 4, int in_host = 2, bool frozen = false) {
  Config config = Config::from_text(
      R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage3_param_persistence_threshold": 0, )" +
          members + "}}",
      {.world_size = world, .ranks_per_host = in_host});
  const std::vector<UnitSpec> units = {{"a", {{"w", {4096}, DType::bf16, !frozen}, {"v", {4096}, DType::bf16}}, {}}};
  return quantized_text(lay_out(units, layout_options(config, world)), config);
}

constexpr const char* kMeaning = ": repeatable, equal at every stage that has it, and not the bits of an exact run";

TEST(QuantizedText, SaysWhatTravelsInHowManyBitsAndWhatThatMeans) {
  EXPECT_EQ(text_of(R"("stage": 3)"), "");
  EXPECT_EQ(text_of(R"("stage": 3, "zero_quantized_weights": true)"),
            std::string("weights are gathered as int8") + kMeaning);
  EXPECT_EQ(
      text_of(R"("stage": 3, "zero_quantized_weights": true, "zero_quantized_gradients": true,
                       "zeropp_loco_param": {"err_beta": 0.8})"),
      std::string("weights are gathered as int8, sums of gradients go between hosts as int4 with error feedback") +
          kMeaning + "; a run that is resumed has other bits than one that goes on");
  EXPECT_EQ(text_of(R"("stage": 3, "zero_quantized_nontrainable_weights": true)", 4, 2, /*frozen=*/true),
            std::string("frozen weights are gathered as int8") + kMeaning);
}

TEST(QuantizedText, SaysWhyNothingIsQuantized) {
  EXPECT_EQ(text_of(R"("stage": 3, "zero_quantized_nontrainable_weights": true)"),
            "frozen weights are exact, none are gathered");
  EXPECT_EQ(text_of(R"("stage": 3, "zero_quantized_weights": true)", 1, 0), "weights are exact, none are gathered");
  EXPECT_EQ(text_of(R"("stage": 2, "zero_quantized_gradients": true)", 4, 0),
            "gradients are exact, as none go between hosts");
  EXPECT_EQ(text_of(R"("stage": 3, "zero_quantized_weights": true, "zero_quantized_gradients": true)", 4, 4),
            std::string("weights are gathered as int8") + kMeaning + "; gradients are exact, as none go between hosts");
}

}  // namespace
}  // namespace shoal
