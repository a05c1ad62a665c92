#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

TEST(Fp16, ReadsTheLossScale) {
  const Config config = parse_members(R"("fp16": {"enabled": true, "loss_scale": 128, "initial_scale_power": 8,
    "loss_scale_window": 7, "hysteresis": 1, "consecutive_hysteresis": true, "min_loss_scale": 0.5})");
  EXPECT_EQ(config.precision, Precision::fp16);
  EXPECT_EQ(config.fp16, (Fp16Config{true, 128, 8, 7, 1, true, 0.5}));
}

TEST(Fp16, TheSmallestScaleIsNotAboveTheFirst) {
  EXPECT_EQ(mistakes_of(R"("fp16": {"enabled": true, "initial_scale_power": 3, "min_loss_scale": 9})"),
            "[line 1, fp16.min_loss_scale] 9 is above the first loss scale, 2^3 = 8. Lower it or raise "
            "fp16.initial_scale_power.");
  EXPECT_EQ(mistakes_of(R"("fp16": {"enabled": true, "initial_scale_power": 3, "min_loss_scale": 8})"), "");
  EXPECT_EQ(mistakes_of(R"("fp16": {"enabled": true, "loss_scale": 1, "initial_scale_power": 3, "min_loss_scale": 9})"),
            "");
}

TEST(Fp16, BoundsAreKept) {
  EXPECT_NE(mistakes_of(R"("fp16": {"loss_scale": -1})"), "");
  EXPECT_NE(mistakes_of(R"("fp16": {"loss_scale": true})"), "");
  EXPECT_NE(mistakes_of(R"("fp16": {"loss_scale_window": 0})"), "");
  EXPECT_NE(mistakes_of(R"("fp16": {"hysteresis": 0})"), "");
  EXPECT_NE(mistakes_of(R"("fp16": {"min_loss_scale": 0})"), "");
}

TEST(Fp16, MastersInFp16WantFp16) {
  EXPECT_TRUE(parse_members(R"("fp16": {"enabled": true, "fp16_master_weights_and_grads": true})")
                  .fp16.master_weights_and_grads);
  EXPECT_EQ(mistakes_of(R"("fp16": {"fp16_master_weights_and_grads": true})"),
            "[line 1, fp16.fp16_master_weights_and_grads] true, and fp16.enabled is false: nothing is in fp16 then. "
            "Switch fp16 on, or remove the key.");
}

}  // namespace shoal::config
