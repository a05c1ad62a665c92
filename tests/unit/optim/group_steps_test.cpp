#include "optim/group_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace shoal {
namespace {

StepNumbers numbers_of(int64_t step) {
  StepNumbers numbers;
  numbers.step = step;
  numbers.grad_scale = 0.25;
  numbers.lrs = {0.5, 0.125};
  numbers.weight_decays = {0.01, 0};
  return numbers;
}

OptimizerConfig config_of(OptimizerKind kind) {
  OptimizerConfig config;
  config.kind = kind;
  config.momentum = 0.75;
  return config;
}

TEST(GroupSteps, EachGroupHasItsRateAndDecay) {
  const auto steps =
      std::get<std::vector<kernels::AdamStep>>(group_steps(config_of(OptimizerKind::adamw), numbers_of(1)));
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].lr, 0.5f);
  EXPECT_EQ(steps[1].lr, 0.125f);
  EXPECT_EQ(steps[0].weight_decay, 0.01f);
  EXPECT_EQ(steps[1].weight_decay, 0.0f);
  EXPECT_EQ(steps[1].grad_scale, 0.25f);
}

TEST(GroupSteps, AreTheSameWhereEveryConstantIs) {
  for (const OptimizerRow& row : kOptimizers) {
    SCOPED_TRACE(row.name);
    const OptimizerKind kind = row.kind;
    const GroupSteps steps = group_steps(config_of(kind), numbers_of(2));
    EXPECT_TRUE(are_same(steps, group_steps(config_of(kind), numbers_of(2))));
    StepNumbers clipped = numbers_of(2);
    clipped.grad_scale = std::nextafterf(0.25f, 0);
    EXPECT_FALSE(are_same(steps, group_steps(config_of(kind), clipped)));
    StepNumbers slower = numbers_of(2);
    slower.lrs[1] /= 2;
    EXPECT_FALSE(are_same(steps, group_steps(config_of(kind), slower))) << "of one group";
    StepNumbers fewer = numbers_of(2);
    fewer.lrs.pop_back();
    fewer.weight_decays.pop_back();
    EXPECT_FALSE(are_same(steps, group_steps(config_of(kind), fewer)));
  }
  const auto of = [](OptimizerKind kind, int64_t step) { return group_steps(config_of(kind), numbers_of(step)); };
  EXPECT_FALSE(are_same(of(OptimizerKind::adamw, 2), of(OptimizerKind::adamw, 3)));
  EXPECT_FALSE(are_same(of(OptimizerKind::adamw, 2), of(OptimizerKind::adam, 2)));
  EXPECT_FALSE(are_same(of(OptimizerKind::adamw, 2), of(OptimizerKind::lion, 2)));
  EXPECT_FALSE(are_same(of(OptimizerKind::sgd, 1), of(OptimizerKind::sgd, 2)));
}

TEST(GroupSteps, AdamCorrectsItsBiasByTheCountOfAppliedSteps) {
  OptimizerConfig config = config_of(OptimizerKind::adam);
  const auto third = std::get<std::vector<kernels::AdamStep>>(group_steps(config, numbers_of(3)))[0];
  EXPECT_FALSE(third.decoupled);
  EXPECT_EQ(third.inv_bias1, static_cast<float>(1 / (1 - std::pow(double{0.9f}, 3.0))));
  EXPECT_EQ(third.inv_sqrt_bias2, static_cast<float>(1 / std::sqrt(1 - std::pow(double{0.999f}, 3.0))));
  config.bias_correction = false;
  EXPECT_EQ(std::get<std::vector<kernels::AdamStep>>(group_steps(config, numbers_of(3)))[0].inv_bias1, 1.0f);
}

// After one step the corrected moments are the gradient and its square, to the last roundings.
TEST(GroupSteps, AdamsFirstStepIsAsLongAsTheRate) {
  for (const auto& [beta1, beta2] : std::vector<std::pair<double, double>>{{0.9, 0.999}, {0.8, 0.95}, {0.95, 0.9999}}) {
    StepNumbers numbers = numbers_of(1);
    numbers.lrs = {1e-2};
    numbers.weight_decays = {0};
    numbers.beta1 = beta1;
    numbers.beta2 = beta2;
    numbers.grad_scale = 1;
    const GroupSteps steps = group_steps(config_of(OptimizerKind::adamw), numbers);
    float weight = 0, first = 0, second = 0;
    const float grad = 0.7f;
    kernels::update({.numel = 1, .weight = &weight, .grad = &grad, .first = &first, .second = &second},
                    std::get<std::vector<kernels::AdamStep>>(steps)[0]);
    EXPECT_NEAR(weight, -1e-2, 1e-2 * 4e-7) << beta2;
  }
}

TEST(GroupSteps, SgdKnowsItsFirstStep) {
  const OptimizerConfig config = config_of(OptimizerKind::sgd);
  EXPECT_TRUE(std::get<std::vector<kernels::SgdStep>>(group_steps(config, numbers_of(1)))[0].first_step);
  const auto second = std::get<std::vector<kernels::SgdStep>>(group_steps(config, numbers_of(2)))[0];
  EXPECT_FALSE(second.first_step);
  EXPECT_EQ(second.momentum, 0.75f);
}

TEST(GroupSteps, ChoicesAreTheConstantsOfEachNumberOneAfterTheOther) {
  const OptimizerConfig config = config_of(OptimizerKind::adamw);
  const StepChoices choices = step_choices(config, 2, {numbers_of(3), numbers_of(4)});
  EXPECT_EQ(choices.first_steps_before, 2);
  EXPECT_EQ(choices.count, 2);
  const auto steps = std::get<std::vector<kernels::AdamStep>>(choices.steps);
  ASSERT_EQ(steps.size(), 4u);
  const auto fourth = std::get<std::vector<kernels::AdamStep>>(group_steps(config, numbers_of(4)));
  for (size_t group = 0; group < 2; ++group) {
    EXPECT_EQ(steps[2 + group].inv_bias1, fourth[group].inv_bias1);
    EXPECT_EQ(steps[2 + group].lr, fourth[group].lr);
    EXPECT_NE(steps[group].inv_bias1, fourth[group].inv_bias1);
  }
}

TEST(GroupSteps, TheAlternativeSaysWhichOptimizer) {
  for (const OptimizerRow& row : kOptimizers) {
    std::visit(
        [&](const auto& steps) {
          const auto& kinds = std::decay_t<decltype(steps[0])>::kKinds;
          EXPECT_NE(std::find(std::begin(kinds), std::end(kinds), row.kind), std::end(kinds)) << row.name;
        },
        group_steps(config_of(row.kind), numbers_of(1)));
  }
}

}  // namespace
}  // namespace shoal
