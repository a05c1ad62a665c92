#include "engine/module_calls.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/mm.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "message_of.h"
#include "shoal/engine.h"

namespace shoal {

using ::testing::HasSubstr;
using testing::message_of;

namespace {

// Two matrices inside a root that holds a third, as hooks on nested modules see them.
struct Nest {
  at::Tensor first = matrix(0.1), second = matrix(0.2), last = matrix(0.3);

  static at::Tensor matrix(double from) {
    return at::linspace(from, from + 0.5, 16).reshape({4, 4}).contiguous().set_requires_grad(true);
  }
  std::vector<Unit> units() const {
    return {{"first", {{"first", first}}}, {"second", {{"second", second}}}, {"root", {{"last", last}}}};
  }
  static at::Tensor use(Engine& engine, int unit, const at::Tensor& x, const at::Tensor& weight) {
    engine.hooks().enter(unit, {x});
    at::Tensor y = at::mm(x, weight);
    engine.hooks().exit(unit, {y});
    return y;
  }
  at::Tensor loss(Engine& engine) const {
    const at::Tensor x = at::linspace(-1, 1, 8).reshape({2, 4});
    engine.hooks().enter(2, {x});
    const at::Tensor y = use(engine, 1, use(engine, 0, x, first), second);
    at::Tensor loss = at::mm(y, last).square().mean();
    engine.hooks().exit(2, {loss});
    return loss;
  }
};

Config config_of(int stage, int64_t accumulation = 1) {
  Config config;
  config.zero.stage = stage;
  config.zero.param_persistence_threshold = 0;
  config.batch.accumulation_steps = accumulation;
  config.batch.train_batch_size = accumulation;
  return config;
}

class ModuleCallsAtStage : public ::testing::TestWithParam<int> {
 protected:
  std::unique_ptr<Group> world_ = make_single_group();
  Nest nest_;
  Engine engine_{nest_.units(), config_of(GetParam()), *world_, {.backward_from_outside = true}};
};
INSTANTIATE_TEST_SUITE_P(Stages, ModuleCallsAtStage, ::testing::Range(0, 4));

}  // namespace

TEST_P(ModuleCallsAtStage, BackwardFromOutsideIsTheSameAsTheEngines) {
  Nest other_nest;
  Engine other(other_nest.units(), config_of(0), *world_);
  for (int step = 0; step < 3; ++step) {
    const at::Tensor loss = nest_.loss(engine_);
    const at::Tensor other_loss = other_nest.loss(other);
    EXPECT_EQ(loss.item<float>(), other_loss.item<float>());
    torch::autograd::backward({loss}, {});
    other.backward(other_loss);
    EXPECT_EQ(engine_.step().grad_norm, other.step().grad_norm);
  }
}

TEST_P(ModuleCallsAtStage, TheOutermostUseWithoutGradientsIsAnEvaluation) {
  const float before = nest_.loss(engine_).item<float>();  // a forward whose graph nobody wants
  engine_.backward(nest_.loss(engine_));
  {
    at::NoGradGuard without_graph;
    EXPECT_EQ(nest_.loss(engine_).item<float>(), before);
    EXPECT_EQ(nest_.loss(engine_).item<float>(), before);
  }
  EXPECT_TRUE(engine_.step().applied);
  at::NoGradGuard without_graph;
  EXPECT_NE(nest_.loss(engine_).item<float>(), before);
}

TEST_P(ModuleCallsAtStage, AnExceptionInsideLeavesAnEngineThatWorks) {
  {
    at::NoGradGuard without_graph;
    engine_.hooks().enter(2, {});
    engine_.hooks().enter(0, {});
    engine_.hooks().abandon(2);  // and with it what was entered inside
    engine_.hooks().abandon(1);  // never entered
  }
  engine_.backward(nest_.loss(engine_));
  EXPECT_TRUE(engine_.step().applied);
}

TEST_P(ModuleCallsAtStage, ASecondBackwardThroughOneForwardIsRefused) {
  const at::Tensor loss = nest_.loss(engine_);
  torch::autograd::backward({loss}, {}, /*retain_graph=*/true);
  engine_.step();
  EXPECT_THAT(message_of([&] { torch::autograd::backward({loss}, {}); }), HasSubstr("whose pass is over"));
}

TEST(ModuleCalls, BoundariesFromOutsideEndAWindowEarlyOrLate) {
  const std::unique_ptr<Group> world = make_single_group();
  for (int stage = 0; stage < 4; ++stage) {
    Nest nest;
    Engine engine(nest.units(), config_of(stage, 2), *world);
    std::vector<double> norms;
    for (const int window : {1, 3, 2}) {
      for (int micro = 1; micro <= window; ++micro) {
        engine.set_boundary(micro == window);
        engine.backward(nest.loss(engine));
        if (micro < window) {
          EXPECT_FALSE(engine.step().boundary);
        }
      }
      const StepResult result = engine.step();
      EXPECT_TRUE(result.applied);
      norms.push_back(result.grad_norm);
    }
    EXPECT_GT(norms[1], 2 * norms[0]);
    EXPECT_EQ(engine.state().progress().applied_steps, 3);
  }
}

TEST(ModuleCalls, AStepNeedsABackwardThatEndsOne) {
  const std::unique_ptr<Group> world = make_single_group();
  Nest nest;
  Engine engine(nest.units(), config_of(2, 2), *world);
  engine.set_boundary(false);
  engine.backward(nest.loss(engine));
  engine.set_boundary(true);
  EXPECT_THAT(message_of([&] { engine.step(); }), HasSubstr("Set the boundary before the backward"));
  engine.backward(nest.loss(engine));
  EXPECT_TRUE(engine.step().applied);
}

TEST(ModuleCalls, ABoundaryThatIsNotOneTakesTheMemoryToAccumulate) {
  const std::unique_ptr<Group> world = make_single_group();
  Nest nest;
  Engine engine(nest.units(), config_of(2), *world);
  engine.set_boundary(false);
  engine.backward(nest.loss(engine));
  EXPECT_FALSE(engine.step().boundary);
  engine.set_boundary(true);
  engine.backward(nest.loss(engine));
  EXPECT_EQ(engine.meters().memory().held.gradients, engine.meters().memory().planned.gradients);
  EXPECT_TRUE(engine.step().applied);
}

TEST(ModuleCalls, GroupsTakeTheirValuesFromOutside) {
  const std::unique_ptr<Group> world = make_single_group();
  Nest nest;
  Engine engine(nest.units(), config_of(1), *world);
  const at::Tensor before = nest.first.detach().clone();
  engine.set_groups({{.lr = 0, .weight_decay = 0}});
  engine.backward(nest.loss(engine));
  EXPECT_EQ(engine.step().lrs, std::vector<double>{0});
  EXPECT_TRUE(before.equal(nest.first.detach()));
  engine.set_groups({{.lr = 0.1, .weight_decay = 0}});
  engine.backward(nest.loss(engine));
  EXPECT_EQ(engine.step().lrs, std::vector<double>{0.1});
  EXPECT_FALSE(before.equal(nest.first.detach()));
}

}  // namespace shoal
