#include "train/nonfinite_steps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace shoal::train {
namespace {

constexpr int64_t kMost = 20;

StepOutcome skipped_at(int64_t step, double loss, double scale = 1) {
  return {.step = step, .loss = loss, .applied = false, .loss_scale = scale, .unit = "model.layers.0"};
}

TEST(NonfiniteSteps, TwentyInARowAreTooMany) {
  for (const double loss : {std::nan(""), std::numeric_limits<double>::infinity(), 3.0}) {
    NonfiniteSteps steps({}, kMost);
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

TEST(NonfiniteSteps, OneStepThatIsTakenBeginsTheCountAgain) {
  NonfiniteSteps steps({}, kMost);
  for (int64_t step = 1; step <= 100; ++step) {
    steps.see(step % kMost == 0 ? StepOutcome{.step = step, .loss = 4} : skipped_at(step, NAN));
    EXPECT_FALSE(steps.too_many());
  }
}

TEST(NonfiniteSteps, ALossScaleThatStillFallsIsNormalAndOneAtItsLeastIsNot) {
  const Fp16Config dynamic{.enabled = true, .loss_scale = 0, .min_loss_scale = 1};
  NonfiniteSteps falling(dynamic, 2);
  for (int64_t step = 1; step <= 16; ++step) {
    falling.see(skipped_at(step, 5, std::ldexp(1.0, 17 - static_cast<int>(step))));
    EXPECT_FALSE(falling.in_a_row()) << step;
  }
  falling.see(skipped_at(17, 5, 1));
  falling.see(skipped_at(18, 5, 1));
  EXPECT_TRUE(falling.too_many());
  NonfiniteSteps fixed({.enabled = true, .loss_scale = 1024}, 1);
  fixed.see(skipped_at(1, 5, 1024));
  EXPECT_TRUE(fixed.too_many()) << "a scale that the config gives does not fall";
  NonfiniteSteps lost(dynamic, 1);
  lost.see(skipped_at(1, NAN, 65536));
  EXPECT_TRUE(lost.too_many()) << "no scale mends a loss that is not finite";
}

TEST(NonfiniteSteps, ZeroMeansNever) {
  NonfiniteSteps steps({}, 0);
  for (int64_t step = 1; step <= 100; ++step) steps.see(skipped_at(step, NAN));
  EXPECT_FALSE(steps.too_many());
}

TEST(NonfiniteSteps, SaysWhatIsKnown) {
  NonfiniteSteps steps({}, kMost);
  steps.see({.step = 6, .loss = 5});
  for (int64_t step = 7; step <= 9; ++step) steps.see(skipped_at(step, NAN));
  EXPECT_EQ(steps.describe(),
            "steps 7 to 9 are not finite: the loss of step 7 was nan, and a gradient of unit model.layers.0 was the "
            "first that was not finite. Go on from a checkpoint before it with a lower --lr, a warm-up, or "
            "gradient_clipping; in fp16 try bf16.");
  NonfiniteSteps first({}, kMost);
  first.see({.step = 1, .loss = INFINITY});
  EXPECT_EQ(first.describe(),
            "step 1 is not finite: the loss of step 1 was inf. It was so from the first step: look at the weights that "
            "the run starts from, at the data, and at the precision.");
}

}  // namespace
}  // namespace shoal::train
