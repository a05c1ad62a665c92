#include "engine/step_line.h"

#include <gtest/gtest.h>

#include <cmath>

namespace shoal {

namespace {

StepResult applied_step() {
  StepResult result;
  result.boundary = true;
  result.applied = true;
  result.grad_norm = 1.25;
  result.lrs = {3e-4, 1e-5};
  result.applied_steps = 11;
  result.skipped_steps = 1;
  return result;
}

}  // namespace

TEST(StepLine, SaysStepNormRateAndSkips) {
  EXPECT_EQ(step_line(applied_step()), "step 12 | norm 1.25 | lr 0.0003 | skipped 1");
}

TEST(StepLine, SaysTheLossScaleWhereThereIsOne) {
  StepResult result = applied_step();
  result.loss_scale = 65536;
  EXPECT_EQ(step_line(result), "step 12 | norm 1.25 | lr 0.0003 | scale 65536 | skipped 1");
}

TEST(StepLine, SaysWhereASkippedStepOverflowed) {
  StepResult result = applied_step();
  result.applied = false;
  result.grad_norm = INFINITY;
  result.overflow_unit = "block.3";
  EXPECT_EQ(step_line(result),
            "step 12 | norm inf | lr 0.0003 | skipped 1 | skipped now: a gradient in block.3 is not finite");
}

TEST(StepLine, SaysWhereTheTimeWent) {
  EXPECT_EQ(time_line(applied_step(), {.forward = 0.0123, .backward = 0.5, .step = 0}),
            "step 12 | forward 12.3 ms | backward 500.0 ms | update 0.0 ms");
  EXPECT_EQ(time_line(applied_step(), {.forward = 0, .backward = 0, .step = 0.25, .disk = 0.125}),
            "step 12 | forward 0.0 ms | backward 0.0 ms | update 250.0 ms, 125.0 ms since the last step waiting for "
            "the disk");
}

TEST(StepLine, IsPrintedEverySoManyStepsAndWhereOneIsSkipped) {
  const auto printed = [](int64_t every, bool applied) {
    Config config;
    config.steps_per_print = every;
    StepResult result = applied_step();
    result.applied = applied;
    ::testing::internal::CaptureStderr();
    print_step(config, result, {});
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(printed(4, true), "shoal: " + step_line(applied_step()) + "\n");
  EXPECT_EQ(printed(5, true), "");
  EXPECT_EQ(printed(0, true), "");
  EXPECT_NE(printed(0, false), "");
}

}  // namespace shoal
