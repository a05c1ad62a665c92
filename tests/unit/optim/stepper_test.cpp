#include "optim/stepper.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "unit/shard/model_parts.h"

namespace shoal {
namespace {

using testing::floats_at;
using testing::ModelParts;
using testing::tensor_of;
using testing::unit_spec;

Config plain_sgd() {
  Config config;
  config.optimizer.kind = OptimizerKind::sgd;
  config.optimizer.lr = 0.5;
  config.optimizer.momentum = 0;
  config.optimizer.weight_decay = 0;
  config.gradient_clipping = 0;
  return config;
}

// Two units of one parameter each, at stage 0 on one rank, all weights 1.
struct Steps {
  explicit Steps(Config config_in = plain_sgd())
      : config(std::move(config_in)),
        weights(parts.weights()),
        gradients(parts.gradients()),
        updater(parts.layout, parts.specs, config, 0, *parts.queue, parts.ledger),
        stepper({parts.layout, config, weights, gradients, updater, *group, *parts.queue, parts.ledger},
                {config.optimizer.lr}, {config.optimizer.weight_decay}) {
    for (int unit = 0; unit < 2; ++unit) {
      const int64_t numel = parts.layout.units[static_cast<size_t>(unit)].flats[0].numel;
      const std::vector<float> ones(static_cast<size_t>(numel), 1.0f);
      updater.set_values(unit, 0, {0, numel}, ones.data(), weights);
    }
  }

  StepResult step(float first, float second, const OutsideUpdate& update = {}) {
    gradients.begin_micro_step(0);
    gradients.deposit(0, 0, tensor_of({first}));
    gradients.deposit(1, 0, tensor_of({second}));
    for (const int unit : {1, 0}) gradients.reduce(unit);
    return stepper.take(update);
  }
  float weight(int unit) const { return floats_at(weights.whole(unit, 0), 1)[0]; }

  Config config;
  std::unique_ptr<Group> group = make_single_group();
  ModelParts parts{{unit_spec(0, {1}), unit_spec(1, {1})}, 0, *group};
  Weights weights;
  Gradients gradients;
  Updater updater;
  Stepper stepper;
};

TEST(Stepper, TakesAStepWithTheNormOfAllUnits) {
  Steps steps;
  const StepResult result = steps.step(3, 4);
  EXPECT_TRUE(result.boundary);
  EXPECT_TRUE(result.applied);
  EXPECT_EQ(result.grad_norm, 5);
  EXPECT_EQ(result.applied_steps, 1);
  EXPECT_EQ(steps.weight(0), 1 - 0.5f * 3);
  EXPECT_EQ(steps.weight(1), 1 - 0.5f * 4);
}

TEST(Stepper, DefersUpdatesUntilAUnitIsNeeded) {
  Config config = plain_sgd();
  config.shoal.defer_update = true;
  Steps steps(config);
  EXPECT_TRUE(steps.step(3, 4).applied);
  EXPECT_EQ(steps.weight(0), 1);
  steps.stepper.settle(0);
  EXPECT_EQ(steps.weight(0), 1 - 0.5f * 3);
  EXPECT_EQ(steps.weight(1), 1);
  steps.stepper.settle(0);
  EXPECT_EQ(steps.weight(0), 1 - 0.5f * 3) << "updated twice";
  EXPECT_TRUE(steps.stepper.has_pending());
  steps.stepper.settle_all();
  EXPECT_FALSE(steps.stepper.has_pending());
  EXPECT_EQ(steps.weight(1), 1 - 0.5f * 4);
  steps.step(std::numeric_limits<float>::infinity(), 4);
  EXPECT_FALSE(steps.stepper.has_pending()) << "a skipped step leaves nothing to do";
}

TEST(Stepper, LeavesTheUpdateToOneFromOutside) {
  Config config = plain_sgd();
  config.gradient_clipping = 1.0;
  Steps steps(config);
  double scale = 0;
  const auto update = [&](double grad_scale) {
    scale = grad_scale;
    float gradient = 0;
    steps.gradients.read(1, 0, 0, 1, &gradient);
    steps.updater.set_values(1, 0, {0, 1}, &gradient, steps.weights);
  };
  EXPECT_TRUE(steps.step(3, 4, update).applied);
  EXPECT_NEAR(scale, 1.0 / 5, 1e-6);
  EXPECT_EQ(steps.weight(0), 1);
  EXPECT_EQ(steps.weight(1), 4);
  scale = 0;
  EXPECT_FALSE(steps.step(std::numeric_limits<float>::infinity(), 4, update).applied);
  EXPECT_EQ(scale, 0);
}

TEST(Stepper, ClipsByTheGlobalNorm) {
  Config config = plain_sgd();
  config.gradient_clipping = 1.0;
  Steps steps(config);
  EXPECT_EQ(steps.step(3, 4).grad_norm, 5);
  EXPECT_NEAR(steps.weight(0), 1 - 0.5 * 3 / 5, 1e-6);
}

TEST(Stepper, SkipsAStepWhoseGradientIsNotFiniteAndNamesTheUnit) {
  Steps steps;
  const StepResult result = steps.step(1, std::numeric_limits<float>::infinity());
  EXPECT_FALSE(result.applied);
  EXPECT_EQ(result.overflow_unit, "u1");
  EXPECT_EQ(result.skipped_steps, 1);
  EXPECT_EQ(steps.weight(0), 1);
  EXPECT_TRUE(steps.step(1, 1).applied);
}

TEST(Stepper, WhatIsToldFromOutsideReplacesTheSchedule) {
  Steps steps;
  steps.stepper.set_groups({{.lr = 0.25, .weight_decay = 0}});
  EXPECT_EQ(steps.stepper.standing().lrs, std::vector<double>{0.25});
  steps.step(4, 0);
  EXPECT_EQ(steps.weight(0), 0);
}

TEST(Stepper, GoesOnFromWhatAnotherSaved) {
  Steps first;
  first.step(1, 1);
  first.step(1, std::numeric_limits<float>::quiet_NaN());
  EngineProgress progress;
  first.stepper.save(progress);
  Steps second;
  second.stepper.restore(progress);
  EXPECT_EQ(second.stepper.standing().applied_steps, 1);
  EXPECT_EQ(second.stepper.standing().skipped_steps, 1);
  EXPECT_FALSE(second.stepper.standing().boundary);
}

}  // namespace
}  // namespace shoal
