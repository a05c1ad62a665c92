#include "engine/step_watch.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "training/matrix_engine.h"
#include "unit/comm/rank_threads.h"

namespace shoal {

using testing::config_of;
using ::testing::HasSubstr;
using testing::MatrixEngine;
using testing::message_of;
using testing::released_at;
using testing::RunOptions;

namespace {

Config config_with(int64_t most, int stage = 0, int ranks = 1) {
  Config config = config_of(released_at(stage), ranks);
  config.shoal.max_nonfinite = most;
  return config;
}

StepResult skipped(int64_t step) {
  StepResult result;
  result.boundary = true;
  result.grad_norm = NAN;
  result.skipped_steps = step;
  result.overflow_unit = "body";
  return result;
}

class StepWatchOfAnEngine : public ::testing::TestWithParam<int> {
 protected:
  // What a run of so many steps from the third on whose loss is multiplied by `factor` ends with; "": it went on.
  std::string run(int64_t most, int64_t steps, double factor, const EngineOptions& options = testing::two_groups()) {
    MatrixEngine matrix(*world_, config_with(most, GetParam()), options);
    for (int step = 0; step < 2; ++step) matrix.train_step(step);
    for (int64_t step = 2; step < 2 + steps; ++step) {
      matrix.engine->backward(matrix.loss(step) * factor);
      const std::string message = message_of([&] { matrix.engine->step(); });
      if (!message.empty()) return message + (step + 1 < 2 + steps ? " Early." : "");
    }
    return "";
  }

  std::unique_ptr<Group> world_ = make_single_group();
};
INSTANTIATE_TEST_SUITE_P(Stages, StepWatchOfAnEngine, ::testing::Range(0, 4));

TEST_P(StepWatchOfAnEngine, EndsARunThatOnlySkips) {
  const std::string message = run(5, 5, NAN);
  EXPECT_THAT(message,
              HasSubstr("[step] steps 3 to 7 are not finite: the loss of step 3 was nan, and a gradient of unit "));
  EXPECT_THAT(message, HasSubstr("So many in a row end a run (shoal.max_nonfinite 5; 0: none do)."));
  EXPECT_EQ(run(5, 4, NAN), "");
  EXPECT_THAT(run(20, 21, INFINITY), HasSubstr("the loss of step 3 was inf"));
  EXPECT_EQ(config_of(released_at(0), 1).shoal.max_nonfinite, 20) << "by default";
}

TEST_P(StepWatchOfAnEngine, LeavesItToWhoAsksForThat) {
  EXPECT_EQ(run(0, 30, NAN), "");
  EngineOptions options = testing::two_groups();
  options.watch_nonfinite = false;
  EXPECT_EQ(run(2, 30, NAN, options), "");
}

// No gradient shows it.
TEST_P(StepWatchOfAnEngine, SeesALossThatIsNotFiniteThoughItsGradientsAre) {
  MatrixEngine matrix(*world_, config_with(2, GetParam()));
  for (int step = 0; step < 2; ++step) {
    matrix.engine->backward(matrix.loss(step) + INFINITY);
    const std::string message = message_of([&] { EXPECT_TRUE(matrix.engine->step().applied); });
    EXPECT_EQ(message.substr(0, 67),
              step == 0 ? "" : "[step] steps 1 to 2 are not finite: the loss of step 1 was inf. It ");
  }
}

// A loss is a rank's own: one that is not finite there alone, with gradients that are, ends no rank before the others.
TEST(StepWatch, ALossThatOneRankKnowsEndsNoRunOfSeveral) {
  testing::run_ranks(2, [](Group& group) {
    MatrixEngine matrix(group, config_with(2, 3, group.size()));
    for (int step = 0; step < 4; ++step) {
      matrix.engine->backward(matrix.loss(step) + (group.rank() == 0 ? INFINITY : 0));
      EXPECT_TRUE(matrix.engine->step().applied);
    }
    for (int step = 0; step < 2; ++step) {
      matrix.engine->backward(matrix.loss(step) * (group.rank() == 0 ? NAN : 1));
      const std::string message = message_of([&] { matrix.engine->step(); });
      if (step == 0) {
        EXPECT_EQ(message, "");
      } else {
        EXPECT_THAT(message, HasSubstr("[step] steps 5 to 6 are not finite: the loss of step 5"));
      }
    }
  });
}

// A root that is no loss, or none, is one that is not known.
TEST(StepWatch, WhatIsNoNumberIsNoLoss) {
  StepWatch watch(config_with(1), true, 1);
  watch.add_loss({});
  EXPECT_THAT(watch.take_losses(), ::testing::IsEmpty());
  watch.add_loss(at::full({2}, 1.0));
  EXPECT_THAT(watch.take_losses(), ::testing::IsEmpty());
}

// In bf16 a step may be taken with any gradient, and is lost all the same.
TEST_P(StepWatchOfAnEngine, CountsStepsThatWereTakenWithGradientsThatAreNotFinite) {
  RunOptions options = released_at(GetParam());
  options.precision = Precision::bf16;
  Config config = config_of(options, 1);
  config.check_grad_overflow = false;
  config.shoal.max_nonfinite = 2;
  MatrixEngine matrix(*world_, config);
  matrix.engine->backward(matrix.loss(0) * NAN);
  EXPECT_TRUE(matrix.engine->step().applied);
  matrix.engine->backward(matrix.loss(1));
  EXPECT_THAT(message_of([&] { matrix.engine->step(); }), HasSubstr("[step] steps 1 to 2 are not finite"));
}

TEST(StepWatch, SaysTheMeanLossOfTheMicroStepsAndNoneWhereOneIsNotKnown) {
  const auto loss = [](double value) { return at::full({}, value); };
  StepWatch watch(config_with(1), true, 1);
  watch.add_loss(loss(2));
  watch.add_loss(loss(5));
  EXPECT_THAT(message_of([&] { watch.see(skipped(7), watch.take_losses()); }),
              HasSubstr("the loss of step 7 was 3.5, "));
  watch.add_loss(loss(2));
  watch.forget_losses();
  watch.add_loss(loss(5));
  EXPECT_THAT(message_of([&] { watch.see(skipped(8), watch.take_losses()); }),
              HasSubstr("steps 7 to 8 are not finite: the loss of step 7 was 3.5"));
  StepWatch other(config_with(1), true, 1);
  other.add_loss(loss(2));
  other.forget_losses();
  other.add_loss(loss(5));
  EXPECT_THAT(message_of([&] { other.see(skipped(7), other.take_losses()); }),
              HasSubstr("step 7 is not finite: a gradient of unit body"));
  other.add_loss(loss(4));
  EXPECT_THAT(other.take_losses(), ::testing::SizeIs(1)) << "the next step begins anew";
}

}  // namespace
}  // namespace shoal
