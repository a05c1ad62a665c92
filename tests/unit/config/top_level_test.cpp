#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

TEST(TopLevel, ReadsGradientKeys) {
  const Config config = parse_members(R"("gradient_clipping": 0, "communication_data_type": "fp32",
    "gradient_predivide_factor": 2, "gradient_allreduce_op": "mean")");
  EXPECT_EQ(config.gradient_clipping, 0);
  EXPECT_EQ(config.communication_dtype, DType::f32);
  EXPECT_EQ(config.gradient_predivide_factor, 2);
  EXPECT_FALSE(config.gradient_sum);
  EXPECT_TRUE(parse_members(R"("gradient_allreduce_op": "sum")").gradient_sum);
}

TEST(TopLevel, WhoEndsAStepIsTheEnginesChoiceOrTheCallers) {
  EXPECT_TRUE(parse_members("").batch.managed_gradient_accumulation);
  EXPECT_FALSE(parse_members(R"("managed_gradient_accumulation": false)").batch.managed_gradient_accumulation);
}

TEST(TopLevel, StepsPerPrintIsNeverAtNullAndZero) {
  EXPECT_EQ(parse_members(R"("steps_per_print": null)").steps_per_print, 0);
  EXPECT_EQ(parse_members(R"("steps_per_print": 0)").steps_per_print, 0);
  EXPECT_EQ(parse_members(R"("steps_per_print": 10)").steps_per_print, 10);
}

TEST(TopLevel, OtherParallelismIsRefused) {
  EXPECT_EQ(mistakes_of(R"("sequence_parallel_size": 2)"),
            "[line 1, sequence_parallel_size] 2 is not supported yet. Remove the key; for long sequences recompute "
            "activations, with activation_checkpointing.cpu_checkpointing.");
  EXPECT_EQ(mistakes_of(R"("sequence_parallel_size": 1)"), "");
  EXPECT_EQ(mistakes_of(R"("data_parallel_size": 2)"),
            "[line 1, data_parallel_size] 2 is not supported: the data-parallel size is the number of ranks. Remove "
            "the key.");
}

}  // namespace shoal::config
