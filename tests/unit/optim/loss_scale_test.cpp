// Against what DeepSpeed's own DynamicLossScaler (0.19.6) does, run on patterns of good (.) and overflowing (x) steps:
//   DynamicLossScaler(init_scale=64., scale_window=3, min_scale=4., delayed_shift=H, consecutive_hysteresis=C,
//                     raise_error_at_min_scale=True, dtype=torch.half), then update_scale(overflow) once a step.
#include "optim/loss_scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/decide_body.h"
#include "shoal/error.h"

namespace shoal {

namespace {

Config fp16_config(int power, int window, double minimum, int hysteresis, bool consecutive) {
  Config config;
  config.precision = Precision::fp16;
  config.fp16 = {.enabled = true,
                 .loss_scale = 0,
                 .initial_scale_power = power,
                 .loss_scale_window = window,
                 .hysteresis = hysteresis,
                 .consecutive_hysteresis = consecutive,
                 .min_loss_scale = minimum};
  return config;
}

constexpr double kThrows = -1;

// As the decision of a step moves it.
void update(LossScale& scale, bool overflow) {
  kernels::ScaleState state = scale.state();
  const bool goes_on = kernels::move_scale(scale.rules(), overflow, state);
  scale.read(state);
  if (!goes_on) scale.refuse(7, "body");
}

// The scale that each step is taken with, and the one after the last; kThrows where reading it threw.
std::vector<double> scales(LossScale scale, const std::string& pattern) {
  std::vector<double> values;
  for (const char step : pattern) {
    values.push_back(scale.value());
    try {
      update(scale, step == 'x');
    } catch (const Error&) {
      values.push_back(kThrows);
      return values;
    }
  }
  values.push_back(scale.value());
  return values;
}

const std::string kPattern = "..x.xx...x.....xx..xxxx";

std::vector<double> dynamic_scales(int hysteresis, bool consecutive) {
  return scales(LossScale(fp16_config(6, 3, 4, hysteresis, consecutive)), kPattern);
}

}  // namespace

TEST(LossScale, IsOneForEverWithoutFp16) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    Config config = fp16_config(6, 1, 1, 1, false);
    config.precision = precision;
    EXPECT_EQ(scales(LossScale(config), "..xx"), (std::vector<double>{1, 1, 1, 1, 1}));
  }
}

TEST(LossScale, AStaticScaleNeverMoves) {
  Config config = fp16_config(6, 1, 1, 1, false);
  config.fp16.loss_scale = 128;
  EXPECT_EQ(scales(LossScale(config), ".xx..x"), std::vector<double>(7, 128.0));
}

TEST(LossScale, HalvesAtOnceWithoutHysteresis) {
  const std::vector<double> expected = {64, 64, 64, 32, 32, 16, 8, 8, 8, 8, 4, 4, 4, 4, 8, 8, 4, kThrows};
  EXPECT_EQ(dynamic_scales(1, false), expected);
  EXPECT_EQ(dynamic_scales(1, true), expected);
}

TEST(LossScale, HysteresisBearsOverflowsUntilTheWindowRefillsIt) {
  EXPECT_EQ(dynamic_scales(2, false),
            (std::vector<double>{64, 64, 64, 64, 64, 32, 16, 16, 16, 16, 8, 8, 8, 8, 16, 16, 16, 8, 8, 8, 4, kThrows}));
  EXPECT_EQ(dynamic_scales(3, false), (std::vector<double>{64, 64, 64, 64, 64, 64, 32, 32, 32, 32, 16, 16,
                                                           16, 16, 32, 32, 32, 32, 32, 32, 16, 8,  4,  kThrows}));
}

TEST(LossScale, ConsecutiveHysteresisIsRefilledByEveryGoodStep) {
  EXPECT_EQ(dynamic_scales(2, true), (std::vector<double>{64, 64, 64, 64, 64, 64, 32, 32, 32, 32, 32, 32,
                                                          32, 32, 64, 64, 64, 32, 32, 32, 32, 16, 8,  4}));
  EXPECT_EQ(dynamic_scales(3, true), (std::vector<double>{64, 64, 64,  64,  64,  64,  64,  64,  64,  64,  64, 64,
                                                          64, 64, 128, 128, 128, 128, 128, 128, 128, 128, 64, 32}));
}

TEST(LossScale, AWindowOfOneDoublesAtEveryGoodStepButTheFirst) {
  EXPECT_EQ(scales(LossScale(fp16_config(3, 1, 1, 2, false)), "....x.."),
            (std::vector<double>{8, 8, 16, 32, 64, 64, 64, 128}));
}

TEST(LossScale, SaysWhatToDoWhenTheMinimumOverflows) {
  LossScale scale(fp16_config(2, 10, 2, 1, false));
  update(scale, true);
  EXPECT_EQ(scale.value(), 2);
  try {
    update(scale, true);
    FAIL() << "the minimum overflowed and nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("[loss scale]"));
    EXPECT_THAT(error.what(),
                ::testing::HasSubstr("overflow at step 7, first in body, though the loss scale is at its minimum, 2"));
  }
}

TEST(LossScale, ARestoredScaleGoesOnWhereItWas) {
  LossScale first(fp16_config(6, 3, 2, 1, false));
  for (const bool overflow : {true, false, false, true, false}) update(first, overflow);
  EngineProgress progress;
  first.save(progress);
  LossScale second(fp16_config(6, 3, 2, 1, false));
  second.restore(progress);
  for (const bool overflow : {false, true, false, false, false, false}) {
    EXPECT_EQ(second.value(), first.value());
    update(first, overflow);
    update(second, overflow);
  }
}

TEST(LossScale, IsThereForWeightsOfAnyDtypeWhereTheConfigAsksForIt) {
  Config config = fp16_config(6, 3, 4, 1, false);
  config.precision = Precision::fp32;
  config.fp16.enabled = false;
  EXPECT_EQ(LossScale(config).value(), 1);
  config.shoal.scale_loss = true;
  LossScale scale(config);
  EXPECT_EQ(scale.value(), 64);
  update(scale, true);
  EXPECT_EQ(scale.value(), 32);
}

TEST(LossScale, ARunThatHadNoScaleLeavesTheConfiguredOne) {
  EngineProgress progress;
  LossScale(Config{}).save(progress);
  LossScale scale(fp16_config(6, 3, 2, 1, false));
  scale.restore(progress);
  EXPECT_EQ(scale.value(), 64);
}

}  // namespace shoal
