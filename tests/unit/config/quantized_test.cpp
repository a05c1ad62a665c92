#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

using ::testing::HasSubstr;

std::string zero_of(const std::string& members) { return R"("zero_optimization": {)" + members + "}"; }

TEST(Quantized, IsReadAsDeepSpeedWritesIt) {
  const Config config =
      parse_members(zero_of(R"("stage": 3, "zero_hpz_partition_size": 2, "zero_quantized_weights": true,
    "zero_quantized_nontrainable_weights": true, "zero_quantized_gradients": true,
    "zeropp_loco_param": {"err_beta": 0.8, "reset_T": 512})"));
  EXPECT_TRUE(config.zero.quantized_weights);
  EXPECT_TRUE(config.zero.quantized_frozen_weights);
  EXPECT_TRUE(config.zero.quantized_gradients);
  EXPECT_EQ(config.zero.error_feedback, 0.8);
  EXPECT_EQ(config.zero.error_reset_steps, 512);
  EXPECT_EQ(config.shoal.quantized_gradient_bits, 4);
  EXPECT_EQ(Config::from_text(config.to_json()), config);
  const Config off =
      parse_members(zero_of(R"("stage": 3, "zero_quantized_weights": false, "zeropp_loco_param": null)"));
  EXPECT_FALSE(off.zero.quantized_weights);
  EXPECT_LT(off.zero.error_feedback, 0);
  EXPECT_EQ(Config::from_text(off.to_json()), off);
}

TEST(Quantized, WeightsAreOfStage3AndGradientsOfStages2And3) {
  for (const std::string key : {"zero_quantized_weights", "zero_quantized_nontrainable_weights"}) {
    for (const std::string stage : {"0", "1", "2"}) {
      EXPECT_THAT(mistakes_of(zero_of(R"("stage": )" + stage + ", \"" + key + R"(": true)")),
                  HasSubstr("is about gathers of weights, which only stage 3 makes"));
    }
  }
  for (const std::string stage : {"0", "1"}) {
    EXPECT_THAT(mistakes_of(zero_of(R"("stage": )" + stage + R"(, "zero_quantized_gradients": true)")),
                HasSubstr("is about gradients that are cut over ranks, as they are at stages 2 and 3"));
  }
  EXPECT_EQ(mistakes_of(zero_of(R"("stage": 2, "zero_quantized_gradients": true)")), "");
}

TEST(Quantized, WhatContradictsItIsRefused) {
  const std::string gradients = R"("stage": 3, "zero_quantized_gradients": true)";
  EXPECT_THAT(mistakes_of(zero_of(gradients + R"(, "mics_shard_size": 2, "mics_hierarchical_params_gather": true)")),
              HasSubstr("Remove one of them"));
  EXPECT_THAT(mistakes_of(zero_of(gradients) + R"(, "shoal": {"fold_group": 2})"), HasSubstr("Remove one of them"));
  EXPECT_THAT(mistakes_of(zero_of(gradients) + R"(, "shoal": {"reduce": "nccl"})"), HasSubstr("Remove one of them"));
  EXPECT_THAT(mistakes_of(zero_of(gradients) + R"(, "shoal": {"quantized_gradient_bits": 6})"),
              HasSubstr("Give 4 or 8"));
}

TEST(Quantized, ErrorFeedbackNeedsGradientsThatAreQuantizedAndAScaleThatStays) {
  EXPECT_THAT(mistakes_of(zero_of(R"("stage": 3, "zeropp_loco_param": {"err_beta": 0.8})")),
              HasSubstr("Set zero_quantized_gradients"));
  const std::string with = zero_of(
      R"("stage": 3, "zero_quantized_gradients": true, "zeropp_loco_param": {"err_beta": 0.8, "reset_T": 1024})");
  EXPECT_EQ(mistakes_of(with + R"(, "bf16": {"enabled": true})"), "");
  EXPECT_THAT(mistakes_of(with + R"(, "fp16": {"enabled": true})"), HasSubstr("a loss scale that moves"));
  EXPECT_THAT(mistakes_of(zero_of(R"("stage": 3, "zero_quantized_gradients": true,
                                     "zeropp_loco_param": {"reset_T": 8})")),
              HasSubstr("err_beta, which switches them on, is missing"));
  EXPECT_NE(mistakes_of(zero_of(R"("stage": 3, "zero_quantized_gradients": true,
                                   "zeropp_loco_param": {"err_beta": 1})")),
            "");
}

TEST(Quantized, BitsWithoutQuantizedGradientsAreNoticed) {
  const Config config = parse_members(R"("shoal": {"quantized_gradient_bits": 8})");
  ASSERT_EQ(config.notices.size(), 1u);
  EXPECT_THAT(config.notices[0], HasSubstr("has no effect without zero_optimization.zero_quantized_gradients"));
}

}  // namespace shoal::config
