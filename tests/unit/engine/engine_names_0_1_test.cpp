// What 0.1 called the methods of the views still works, and does what the new names do.
#include "shoal/engine_names_0_1.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <type_traits>

#include "shoal/engine.h"

namespace shoal {

// A view is a cheap value, and one of a const engine does not write.
static_assert(std::is_trivially_copyable_v<StateView> && std::is_trivially_copyable_v<ConstStateView>);
static_assert(std::is_trivially_copyable_v<MetersView> && std::is_trivially_copyable_v<HooksView>);
static_assert(std::is_same_v<decltype(std::declval<Engine&>().state()), StateView>);
static_assert(std::is_same_v<decltype(std::declval<const Engine&>().state()), ConstStateView>);

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace {

using Values = std::vector<float>;

class EngineNamesOf01 : public ::testing::Test {
 protected:
  // The gradient of each weight is 1.
  at::Tensor loss() {
    engine_.enter(0, {at::ones({4})});
    at::Tensor sum = weight_.sum();
    engine_.exit(0, {sum});
    return sum;
  }
  void backward() {
    const at::Tensor root = loss();
    engine_.begin_backward();
    torch::autograd::backward({root}, {});
    engine_.finish_backward();
  }
  Values read(const StateRun& run) const {
    Values values(static_cast<size_t>(run.numel));
    engine_.read_state(run, values.data());
    return values;
  }

  static Config sgd() {
    Config config;
    config.optimizer.kind = OptimizerKind::sgd;
    config.optimizer.lr = 1;
    config.gradient_clipping = 0;
    return config;
  }

  std::unique_ptr<Group> world_ = make_single_group();
  at::Tensor weight_ = at::arange(4).to(at::kFloat).set_requires_grad(true);
  Engine engine_{{{"unit", {{"weight", weight_}}}}, sgd(), *world_};
};

}  // namespace

TEST_F(EngineNamesOf01, ReadAndWriteTheState) {
  ASSERT_EQ(engine_.params().size(), 1u);
  EXPECT_EQ(engine_.params()[0].name, "weight");
  ASSERT_EQ(engine_.owned_state().size(), 1u);
  EXPECT_EQ(engine_.kept_state().size(), engine_.state().kept().size());
  const StateRun run = engine_.owned_state()[0];
  EXPECT_EQ(read(run), (Values{0, 1, 2, 3}));
  const Values other = {4, 5, 6, 7};
  engine_.write_state(run, other.data());
  EngineProgress progress = engine_.progress();
  progress.applied_steps = 3;
  engine_.finish_restore(progress);
  EXPECT_EQ(read(run), other);
  EXPECT_EQ(engine_.state().progress().applied_steps, 3);
  EXPECT_EQ(engine_.loss_scale(), 1);
}

TEST_F(EngineNamesOf01, RunAPassInHalvesAndReachItsGradients) {
  backward();
  ASSERT_EQ(engine_.owned_gradients().size(), 1u);
  Values gradient(4);
  engine_.read_gradient(engine_.owned_gradients()[0], gradient.data());
  EXPECT_EQ(gradient, (Values{1, 1, 1, 1}));
  const Values other = {1, 0, 0, 2};
  ASSERT_EQ(engine_.kept_gradients().size(), 1u);
  engine_.write_gradient(engine_.kept_gradients()[0], other.data());
  engine_.set_betas(0.9, 0.99);
  EXPECT_TRUE(engine_.step().applied);
  EXPECT_EQ(read(engine_.owned_state()[0]), (Values{-1, 1, 2, 1}));
  engine_.enter(0, {});
  engine_.abandon(0);
  backward();
}

TEST_F(EngineNamesOf01, GatherInHalves) {
  const int id = engine_.begin_gathered({"weight"});
  EXPECT_EQ(weight_[3].item<float>(), 3);
  engine_.finish_gathered(id);
}

TEST_F(EngineNamesOf01, Meter) {
  EXPECT_EQ(engine_.memory().held, engine_.meters().memory().held);
  EXPECT_GT(engine_.memory().held.total(), 0u);
  EXPECT_EQ(engine_.traffic().sent_nbytes, 0u);
  EXPECT_EQ(engine_.waited_seconds(), 0);
  EXPECT_EQ(engine_.disk().read_nbytes, 0u);
  EXPECT_EQ(engine_.host().to_host_nbytes, 0u);
  const Engine& read_only = engine_;
  EXPECT_THAT(read_only.explain_out_of_memory("forward", "no room").what(), ::testing::HasSubstr("unit"));
}

#pragma GCC diagnostic pop

}  // namespace shoal
