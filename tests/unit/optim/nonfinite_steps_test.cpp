#include "optim/nonfinite_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace shoal {
namespace {

constexpr int64_t kMost = 20;

StepOutcome skipped_at(int64_t step, double loss, double scale = 1) {
  return {.step = step, .loss = loss, .finite = false, .loss_scale = scale, .unit = "model.layers.0"};
}

TEST(NonfiniteSteps, TwentyInARowAreTooMany) {
  for (const double loss : {std::nan(""), std::numeric_limits<double>::infinity(), 3.0}) {
    NonfiniteSteps steps({}, kMost, true);
    steps.see({.step = 1, .loss = 5});
    EXPECT_FALSE(steps.in_a_row());
    for (int64_t step = 2; step < 21; ++step) {
      steps.see(skipped_at(step, loss));
      EXPECT_TRUE(steps.in_a_row());
      EXPECT_FALSE(steps.too_many()) << step;
    }
    steps.see(skipped_at(21, loss));
    EXPECT_TRUE(steps.too_many());
    EXPECT_EQ(steps.lost(), !std::isfinite(loss));
  }
}

TEST(NonfiniteSteps, ALossThatRanksDoNotShareIsForTheWordsAlone) {
  NonfiniteSteps steps({}, 2, false);
  steps.see({.step = 1, .loss = NAN});
  EXPECT_FALSE(steps.in_a_row());
  EXPECT_FALSE(steps.lost());
  steps.see(skipped_at(2, NAN));
  steps.see(skipped_at(3, 5));
  EXPECT_TRUE(steps.too_many());
  EXPECT_THAT(steps.describe(), ::testing::HasSubstr("the loss of step 2 was nan"));
}

TEST(NonfiniteSteps, OneStepThatIsTakenBeginsTheCountAgain) {
  NonfiniteSteps steps({}, kMost, true);
  for (int64_t step = 1; step <= 100; ++step) {
    steps.see(step % kMost == 0 ? StepOutcome{.step = step, .loss = 4} : skipped_at(step, NAN));
    EXPECT_FALSE(steps.too_many());
  }
}

TEST(NonfiniteSteps, ALossScaleThatStillFallsIsNormalAndOneAtItsLeastIsNot) {
  Config dynamic;
  dynamic.precision = Precision::fp16;
  dynamic.fp16 = {.enabled = true, .loss_scale = 0, .min_loss_scale = 1};
  NonfiniteSteps falling(dynamic, 2, true);
  for (int64_t step = 1; step <= 16; ++step) {
    falling.see(skipped_at(step, 5, std::ldexp(1.0, 17 - static_cast<int>(step))));
    EXPECT_FALSE(falling.in_a_row()) << step;
  }
  falling.see(skipped_at(17, 5, 1));
  falling.see(skipped_at(18, 5, 1));
  EXPECT_TRUE(falling.too_many());
  Config given = dynamic;
  given.fp16.loss_scale = 1024;
  NonfiniteSteps fixed(given, 1, true);
  fixed.see(skipped_at(1, 5, 1024));
  EXPECT_TRUE(fixed.too_many()) << "a scale that the config gives does not fall";
  NonfiniteSteps lost(dynamic, 1, true);
  lost.see(skipped_at(1, NAN, 65536));
  EXPECT_TRUE(lost.too_many()) << "no scale mends a loss that is not finite";
}

TEST(NonfiniteSteps, AScaleOfFp32WeightsFallsToo) {
  Config config;
  config.shoal.scale_loss = true;
  NonfiniteSteps falling(config, 1, true);
  falling.see(skipped_at(1, 5, 65536));
  EXPECT_FALSE(falling.in_a_row());
  falling.see(skipped_at(2, 5, 1));
  EXPECT_TRUE(falling.too_many());
}

TEST(NonfiniteSteps, KnowsARunOfNothingElse) {
  NonfiniteSteps steps({}, kMost, true);
  EXPECT_FALSE(steps.nothing_else()) << "no step is no such run";
  steps.see(skipped_at(1, 5));
  steps.see(skipped_at(2, 5));
  EXPECT_TRUE(steps.nothing_else());
  steps.see({.step = 3, .loss = 5});
  steps.see(skipped_at(4, 5));
  EXPECT_FALSE(steps.nothing_else());
}

TEST(NonfiniteSteps, ZeroMeansNever) {
  NonfiniteSteps steps({}, 0, true);
  for (int64_t step = 1; step <= 100; ++step) steps.see(skipped_at(step, NAN));
  EXPECT_FALSE(steps.too_many());
}

TEST(NonfiniteSteps, SaysWhatIsKnown) {
  NonfiniteSteps steps({}, kMost, true);
  steps.see({.step = 6, .loss = 5});
  for (int64_t step = 7; step <= 9; ++step) steps.see(skipped_at(step, NAN));
  EXPECT_EQ(steps.describe(),
            "steps 7 to 9 are not finite: the loss of step 7 was nan, and a gradient of unit model.layers.0 was the "
            "first that was not finite. Go on from a checkpoint before it with a lower learning rate, a warm-up, or "
            "gradient_clipping; in fp16 try bf16.");
  NonfiniteSteps first({}, kMost, true);
  first.see({.step = 1, .loss = INFINITY});
  EXPECT_EQ(first.describe(),
            "step 1 is not finite: the loss of step 1 was inf. It was so from the first step: look at the weights that "
            "the run starts from, at the data, and at the precision.");
  NonfiniteSteps quiet({}, kMost, true);
  quiet.see({.step = 7, .finite = false, .unit = "body"});
  EXPECT_THAT(quiet.describe(),
              ::testing::StartsWith("step 7 is not finite: a gradient of unit body was the first that "
                                    "was not finite. Go on from "));
}

}  // namespace
}  // namespace shoal
