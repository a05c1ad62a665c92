#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

TEST(Bf16, BothNamesOfTheSectionWork) {
  EXPECT_EQ(parse_members(R"("bf16": {"enabled": true})").precision, Precision::bf16);
  EXPECT_EQ(parse_members(R"("bfloat16": {"enabled": true})").precision, Precision::bf16);
  EXPECT_EQ(parse_members(R"("bf16": {"enabled": false})").precision, Precision::fp32);
}

TEST(Bf16, ExcludesFp16) {
  EXPECT_EQ(mistakes_of(R"("bf16": {"enabled": true}, "fp16": {"enabled": true})"),
            "[line 1, bf16.enabled] true, and fp16.enabled is true as well. Switch one of them off.");
}

TEST(Bf16, StatesAndMastersMayBeBf16EachAlone) {
  const Config states = parse_members(R"("bf16": {"enabled": true, "bf16_optimizer_states": true})");
  EXPECT_TRUE(states.bf16_optimizer_states && !states.bf16_masters);
  EXPECT_EQ(Config::from_text(states.to_json()), states);
  const Config masters = parse_members(R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true})");
  EXPECT_TRUE(masters.bf16_masters && !masters.bf16_optimizer_states);
  EXPECT_EQ(Config::from_text(masters.to_json()), masters);
}

TEST(Bf16, StatesAndMastersInBf16WantBf16) {
  EXPECT_EQ(
      mistakes_of(R"("bf16": {"enabled": false, "bf16_optimizer_states": true})"),
      "[line 1, bf16.bf16_optimizer_states] true, and bf16.enabled is false: nothing is in bf16 then. Switch bf16 "
      "on, or remove the key.");
  EXPECT_EQ(mistakes_of(R"("fp16": {"enabled": true}, "bf16": {"bf16_master_weights_and_grads": true})"),
            "[line 1, bf16.bf16_master_weights_and_grads] true, and bf16.enabled is false: nothing is in bf16 then. "
            "Switch bf16 on, or remove the key.");
}

TEST(Bf16, MessagesNameTheSectionAsItWasWritten) {
  EXPECT_EQ(mistakes_of(R"("bfloat16": {"enabled": true}, "fp16": {"enabled": true})"),
            "[line 1, bfloat16.enabled] true, and fp16.enabled is true as well. Switch one of them off.");
  EXPECT_EQ(
      parse_members(R"("bfloat16": {"immediate_grad_update": true})").notices,
      (std::vector<std::string>{
          "bfloat16.immediate_grad_update has no effect: gradients are always taken as soon as they are ready."}));
}

TEST(Bf16, KeysOfTheLossScaleHaveNoEffect) {
  const Config config = parse_members(R"("bf16": {"enabled": true, "loss_scale": 0, "hysteresis": 2})");
  EXPECT_EQ(config.notices, (std::vector<std::string>{"bf16.loss_scale has no effect: bf16 needs no loss scale.",
                                                      "bf16.hysteresis has no effect: bf16 needs no loss scale."}));
}

TEST(Bf16, AStepMayBeTakenWhateverItsGradientsAre) {
  EXPECT_TRUE(parse_members(R"("bf16": {"enabled": true})").check_grad_overflow);
  EXPECT_FALSE(parse_members(R"("bf16": {"enabled": true, "check_grad_overflow": false})").check_grad_overflow);
}

}  // namespace shoal::config
