#include "config/forms.h"

#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

using Lines = std::vector<std::string>;

TEST(Forms, ABooleanForZeroIsAStage) {
  const Config on = parse_members(R"("zero_optimization": true)");
  EXPECT_EQ(on.zero.stage, 1);
  EXPECT_EQ(on.notices, (Lines{"zero_optimization is a boolean, the deprecated form: it is read as {\"stage\": 1}."}));
  EXPECT_EQ(parse_members(R"("zero_optimization": false)").zero.stage, 0);
}

TEST(Forms, DeprecatedOffloadIsReadAsTheSectionsThatTookItsPlace) {
  const Config states = parse_members(R"("zero_optimization": {"stage": 2, "cpu_offload": true})");
  EXPECT_EQ(states.zero.offload_optimizer, (OffloadConfig{.tier = Tier::host}));
  EXPECT_EQ(states.notices, (Lines{"zero_optimization.cpu_offload is deprecated: it is read as \"offload_optimizer\": "
                                   "{\"device\": \"cpu\"}."}));
  const Config weights =
      parse_members(R"("zero_optimization": {"stage": 3, "cpu_offload_param": 1, "cpu_offload_use_pin_memory": true})");
  EXPECT_EQ(weights.zero.offload_param.tier, Tier::host);
  EXPECT_EQ(weights.zero.offload_optimizer.tier, Tier::device);
  EXPECT_EQ(weights.notices.size(), 2u);
  EXPECT_EQ(parse_members(R"("zero_optimization": {"cpu_offload": false, "cpu_offload_param": null})").notices,
            Lines{});
  const Config both =
      parse_members(R"("zero_optimization": {"cpu_offload": true, "offload_optimizer": {"device": "cpu"}})");
  EXPECT_EQ(both.zero.offload_optimizer.tier, Tier::host);
}

TEST(Forms, DeprecatedOffloadThatSaysAnotherThingThanItsSectionIsAMistake) {
  EXPECT_EQ(mistakes_of(R"("zero_optimization": {"cpu_offload": true,
    "offload_optimizer": {"device": "nvme", "nvme_path": "/local"}})"),
            "[line 1, zero_optimization.cpu_offload] true is the deprecated form of offload_optimizer.device \"cpu\", "
            "which is \"nvme\". Remove one of them.");
}

TEST(Forms, WeightsStayOnTheDeviceBelowStageThree) {
  for (const int stage : {0, 1, 2}) {
    const std::string number = std::to_string(stage);
    const Config config =
        parse_members(R"("zero_optimization": {"stage": )" + number + R"(, "offload_param": {"device": "cpu"}})");
    EXPECT_EQ(config.zero.offload_param.tier, Tier::device);
    EXPECT_EQ(config.notices, (Lines{"zero_optimization.offload_param.device has no effect at stage " + number +
                                     ": every rank keeps whole weights on its device. Use stage 3 to move them."}));
  }
  EXPECT_EQ(
      parse_members(R"("zero_optimization": {"stage": 2, "cpu_offload_param": true})").notices.back(),
      "zero_optimization.cpu_offload_param has no effect at stage 2: every rank keeps whole weights on its device. "
      "Use stage 3 to move them.");
}

TEST(Forms, ASumIsDividedByNothing) {
  const Config config =
      parse_members(R"("prescale_gradients": true, "gradient_allreduce_op": "sum", "gradient_predivide_factor": 4)");
  EXPECT_TRUE(config.gradient_sum);
  EXPECT_FALSE(config.prescale_gradients);
  EXPECT_EQ(config.gradient_predivide_factor, 1);
  EXPECT_EQ(config.notices,
            (Lines{"prescale_gradients has no effect: gradient_allreduce_op \"sum\" divides by nothing.",
                   "gradient_predivide_factor has no effect: gradient_allreduce_op \"sum\" divides by nothing."}));
}

TEST(Forms, PrescalingLeavesAPredivideFactorNothingToDo) {
  const Config config = parse_members(R"("prescale_gradients": true, "gradient_predivide_factor": 2)");
  EXPECT_TRUE(config.prescale_gradients);
  EXPECT_EQ(config.gradient_predivide_factor, 1);
  EXPECT_EQ(config.notices, (Lines{"gradient_predivide_factor has no effect: prescale_gradients divides by the number "
                                   "of ranks at once."}));
}

}  // namespace shoal::config
