#include "optim/stepper.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "plan/from_config.h"
#include "shoal/error.h"
#include "unit/optim/far_queue.h"
#include "unit/optim/late_copy_streams.h"
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
  explicit Steps(Config config_in = plain_sgd(), std::unique_ptr<Queue> queue = make_host_queue())
      : config(std::move(config_in)),
        parts(two_units(std::move(queue), *group)),
        weights(parts.weights()),
        gradients(parts.gradients()),
        states(parts.layout, config, 0, *parts.queue, parts.ledger),
        updater(parts.layout, parts.specs, config, states, *parts.queue, parts.ledger),
        stepper({parts.layout, config, weights, gradients, updater, *group, *parts.queue, parts.ledger},
                {config.optimizer.lr}, {config.optimizer.weight_decay}) {
    for (int unit = 0; unit < 2; ++unit) {
      const int64_t numel = parts.layout.units[static_cast<size_t>(unit)].flats[0].numel;
      const std::vector<float> ones(static_cast<size_t>(numel), 1.0f);
      states.set_values(unit, 0, {0, numel}, ones.data(), weights);
    }
  }

  static ModelParts two_units(std::unique_ptr<Queue> queue, Group& group) {
    ModelParts parts{{unit_spec(0, {1}), unit_spec(1, {1})}, 0, group};
    parts.queue = std::move(queue);
    return parts;
  }

  StepResult step(float first, float second, const OutsideUpdate& update = {}) {
    take(first, second, update);
    return stepper.read();
  }
  void take(float first, float second, const OutsideUpdate& update = {}) {
    gradients.begin_micro_step(0);
    gradients.deposit(0, 0, tensor_of({first}));
    gradients.deposit(1, 0, tensor_of({second}));
    for (const int unit : {1, 0}) gradients.reduce(unit);
    stepper.take(update);
  }
  float weight(int unit) const { return floats_at(weights.whole(unit, 0), 1)[0]; }

  Config config;
  std::unique_ptr<Group> group = make_single_group();
  ModelParts parts;
  Weights weights;
  Gradients gradients;
  KeptStates states;
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
  config.shoal.defer_update = DeferUpdate::on;
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

// Of three units with weights in host memory: see [Note: updated weights go home behind the update].
TEST(Stepper, WeightsOffADeviceAreUpdatedOneUnitAheadAndHomeWhenTheyAreNeeded) {
  Config config = plain_sgd();
  config.zero.stage = 3;
  config.zero.offload_param.tier = Tier::host;
  config.shoal.defer_update = DeferUpdate::on;
  testing::FarQueue far;
  far.streams = [] { return std::make_unique<testing::LateCopyStreams>(); };
  const std::unique_ptr<Group> group = make_single_group();
  const std::vector<UnitSpec> specs = {unit_spec(0, {1}), unit_spec(1, {1}), unit_spec(2, {1})};
  const ModelLayout layout = lay_out(specs, {.mesh = 1, .persistence_threshold = 0});
  const auto ledger = std::make_shared<Ledger>();
  Weights weights(layout, shard_options(config), nullptr, *group, far, far, ledger);
  Gradients gradients(layout, {.stage = 3}, {}, *group, far, far, ledger, {});
  KeptStates states(layout, config, 0, far, ledger);
  Updater updater(layout, specs, config, states, far, ledger);
  Stepper stepper({layout, config, weights, gradients, updater, *group, far, ledger}, {0.5}, {0});
  const auto homes = [&] {
    std::vector<float> first;
    for (int unit = 0; unit < 3; ++unit) first.push_back(floats_at(weights.shard(unit, 0), 1)[0]);
    return first;
  };
  for (int step = 1; step <= 2; ++step) {
    gradients.begin_micro_step(0);
    for (const int unit : {2, 1, 0}) {
      gradients.deposit(unit, 0, tensor_of({1}));
      gradients.reduce(unit);
    }
    stepper.take();
    stepper.read();
    const float old = -0.5f * static_cast<float>(step - 1), now = -0.5f * static_cast<float>(step);
    EXPECT_EQ(homes(), (std::vector<float>{old, old, old}));
    stepper.settle(0);
    EXPECT_EQ(homes(), (std::vector<float>{now, old, old}));
    EXPECT_TRUE(stepper.has_pending());
    stepper.settle(1);
    EXPECT_FALSE(stepper.has_pending()) << "the last unit is updated, and on its way";
    EXPECT_EQ(homes(), (std::vector<float>{now, now, old}));
    stepper.settle_all();
    EXPECT_EQ(homes(), (std::vector<float>{now, now, now}));
  }
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
    steps.states.set_values(1, 0, {0, 1}, &gradient, steps.weights);
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
  EXPECT_EQ(steps.stepper.upcoming().lrs, std::vector<double>{0.25});
  steps.step(4, 0);
  EXPECT_EQ(steps.weight(0), 0);
}

// Adam, whose constants depend on the number of applied steps; a schedule that does; a loss scale that moves.
Config with_everything() {
  Config config;
  config.optimizer.kind = OptimizerKind::adamw;
  config.gradient_clipping = 1.0;
  config.precision = Precision::fp16;
  config.fp16 = {.enabled = true,
                 .loss_scale = 0,
                 .initial_scale_power = 3,
                 .loss_scale_window = 2,
                 .hysteresis = 2,
                 .consecutive_hysteresis = false,
                 .min_loss_scale = 1};
  config.scheduler.kind = SchedulerKind::warmup;
  config.scheduler.params = {{"warmup_num_steps", 20}, {"warmup_min_lr", 0.01}, {"warmup_max_lr", 0.1}};
  return config;
}

std::string line_of(const StepResult& result) {
  return fmt::format("{} {} {} {} {} {} {}", result.applied, result.grad_norm, result.loss_scale, result.lrs.at(0),
                     result.applied_steps, result.skipped_steps, result.overflow_unit);
}

TEST(Stepper, StepsThatAreReadLateHaveTheBitsOfThoseReadAtOnce) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> grads = {3, infinity, 1, 2, infinity, infinity, 5, 1, 1, 1, 4, infinity, 2, 2, 0.5f, 7};
  Steps at_once(with_everything());
  auto far_queue = std::make_unique<testing::FarQueue>();
  testing::FarQueue& far = *far_queue;
  Steps late(with_everything(), std::move(far_queue));
  std::vector<std::string> expected, got;
  std::vector<float> backward_scales;
  for (const float grad : grads) {
    backward_scales.push_back(static_cast<float>(at_once.stepper.loss_scale()));
    expected.push_back(line_of(at_once.step(grad, 2)));
  }
  for (size_t step = 0; step < grads.size(); ++step) {
    EXPECT_EQ(*late.stepper.moving_backward_scale(), backward_scales[step]) << "step " << step;
    if (late.stepper.unread() > Stepper::kMostUnread) got.push_back(line_of(late.stepper.read()));
    const int waits = far.waits;
    late.take(grads[step], 2);
    EXPECT_EQ(far.waits, waits) << "the host waited inside step " << step;
    EXPECT_FALSE(late.stepper.is_known(0));
  }
  while (late.stepper.unread() > 0) got.push_back(line_of(late.stepper.read()));
  EXPECT_EQ(got, expected);
  for (const int unit : {0, 1}) EXPECT_EQ(late.weight(unit), at_once.weight(unit));
  EXPECT_EQ(late.stepper.loss_scale(), at_once.stepper.loss_scale());
}

TEST(Stepper, WaitsWhereTheUpdateIsFromOutside) {
  auto far_queue = std::make_unique<testing::FarQueue>();
  testing::FarQueue& far = *far_queue;
  Steps steps(plain_sgd(), std::move(far_queue));
  int calls = 0;
  steps.take(1, std::numeric_limits<float>::infinity(), [&](double) { ++calls; });
  EXPECT_EQ(calls, 0);
  steps.take(1, 1, [&](double) { ++calls; });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(far.waits, 2);
}

TEST(Stepper, AScaleThatCannotFallIsAnErrorWhereTheStepIsRead) {
  Config config = with_everything();
  config.fp16.initial_scale_power = 0;
  config.fp16.hysteresis = 1;
  Steps steps(config, std::make_unique<testing::FarQueue>());
  const float before = steps.weight(0);
  steps.take(std::numeric_limits<float>::infinity(), 1);
  EXPECT_THROW(steps.stepper.read(), Error);
  EXPECT_EQ(steps.weight(0), before);
  EXPECT_EQ(steps.stepper.upcoming().skipped_steps, 1);
  EXPECT_EQ(steps.stepper.loss_scale(), 1);
}

TEST(Stepper, AnUpdateThatThrowsTearsTheStepAndLeavesNothingToRead) {
  Steps steps;
  int torn = 0;
  steps.stepper.when_torn([&] { ++torn; });
  EXPECT_THROW(steps.take(1, 1, [](double) { throw Error("outside", "fails"); }), Error);
  EXPECT_EQ(torn, 1);
  EXPECT_EQ(steps.stepper.unread(), 0);
}

TEST(Stepper, GoesOnFromWhatAnotherSaved) {
  Steps first;
  first.step(1, 1);
  first.step(1, std::numeric_limits<float>::quiet_NaN());
  EngineProgress progress;
  first.stepper.save(progress);
  Steps second;
  second.stepper.restore(progress);
  EXPECT_EQ(second.stepper.upcoming().applied_steps, 1);
  EXPECT_EQ(second.stepper.upcoming().skipped_steps, 1);
  EXPECT_FALSE(second.stepper.upcoming().boundary);
}

}  // namespace
}  // namespace shoal
