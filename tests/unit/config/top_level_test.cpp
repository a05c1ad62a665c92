#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

TEST(TopLevel, ReadsGradientKeys) {
  const Config config = parse_members(R"("gradient_clipping": 0, "communication_data_type": "fp32",
    "gradient_predivide_factor": 2, "gradient_allreduce_op": "sum")");
  EXPECT_EQ(config.gradient_clipping, 0);
  EXPECT_EQ(config.communication_dtype, DType::f32);
  EXPECT_EQ(config.gradient_predivide_factor, 2);
  EXPECT_TRUE(config.gradient_sum);
}

TEST(TopLevel, PrescalingContradictsWhatLeavesItNothingToDo) {
  EXPECT_EQ(mistakes_of(R"("prescale_gradients": true, "gradient_allreduce_op": "sum")"),
            "[line 1, prescale_gradients] true contradicts gradient_allreduce_op \"sum\", which divides by nothing. "
            "Remove one of "
            "them.");
  EXPECT_EQ(mistakes_of(R"("prescale_gradients": true, "gradient_predivide_factor": 2)"),
            "[line 1, prescale_gradients] true leaves gradient_predivide_factor nothing to do. Remove one of them.");
  EXPECT_TRUE(parse_members(R"("prescale_gradients": true)").prescale_gradients);
}

TEST(TopLevel, StepsPerPrintIsNeverAtNullAndZero) {
  EXPECT_EQ(parse_members(R"("steps_per_print": null)").steps_per_print, 0);
  EXPECT_EQ(parse_members(R"("steps_per_print": 0)").steps_per_print, 0);
  EXPECT_EQ(parse_members(R"("steps_per_print": 10)").steps_per_print, 10);
}

TEST(TopLevel, OtherParallelismIsRefused) {
  EXPECT_EQ(mistakes_of(R"("sequence_parallel_size": 2)"),
            "[line 1, sequence_parallel_size] 2 is not supported yet. Remove the key.");
  EXPECT_EQ(mistakes_of(R"("sequence_parallel_size": 1)"), "");
  EXPECT_EQ(mistakes_of(R"("data_parallel_size": 2)"),
            "[line 1, data_parallel_size] 2 is not supported: the data-parallel size is the number of ranks. Remove "
            "the key.");
}

}  // namespace shoal::config
