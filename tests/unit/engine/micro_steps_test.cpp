#include "engine/micro_steps.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

BatchConfig steps_of(int64_t accumulation, bool managed = true) {
  BatchConfig batch;
  batch.accumulation_steps = accumulation;
  batch.managed_gradient_accumulation = managed;
  return batch;
}

void backward(MicroSteps& steps) {
  steps.begin_end();
  steps.add();
}

TEST(MicroSteps, EndAStepByTheConfigsCount) {
  MicroSteps steps(steps_of(2));
  EXPECT_FALSE(steps.next_ends_step());
  EXPECT_FALSE(steps.has_gradients());
  backward(steps);
  EXPECT_TRUE(steps.next_ends_step());
  EXPECT_FALSE(steps.last_ends_step());
  EXPECT_FALSE(steps.has_gradients());
  backward(steps);
  EXPECT_TRUE(steps.last_ends_step());
  EXPECT_TRUE(steps.has_gradients());
  EXPECT_EQ(steps.count(), 2);
  steps.begin_step();
  EXPECT_EQ(steps.count(), 0);
  EXPECT_FALSE(steps.has_gradients());
}

TEST(MicroSteps, WhatIsToldHoldsInPlaceOfTheCount) {
  MicroSteps steps(steps_of(1));
  steps.tell(false);
  EXPECT_FALSE(steps.next_ends_step());
  backward(steps);
  steps.tell(true);
  EXPECT_TRUE(steps.last_ends_step()) << "by the rule of now";
  EXPECT_FALSE(steps.has_gradients()) << "the backward itself ended none";
  steps.tell(std::nullopt);
  EXPECT_TRUE(steps.next_ends_step());
}

TEST(MicroSteps, UnmanagedEveryStepIsOneAndNothingIsTold) {
  MicroSteps steps(steps_of(4, false));
  EXPECT_TRUE(steps.next_ends_step());
  EXPECT_THROW(steps.tell(false), Error);
}

}  // namespace
}  // namespace shoal
