#include "engine/graph_hooks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <memory>
#include <string>
#include <utility>

#include "message_of.h"

namespace shoal {

namespace {

at::Tensor leaf() { return at::ones({2}).set_requires_grad(true); }

void back_propagate(const at::Tensor& root) { torch::autograd::backward({root.sum()}, {}); }

}  // namespace

TEST(GradientHook, TakesTheGradientInsteadOfAccumulatingIt) {
  const at::Tensor param = leaf();
  std::vector<float> taken;
  const GradientHook hook(param, [&](const at::Tensor& grad) { taken.push_back(grad.sum().item<float>()); });
  back_propagate(param * 3);
  back_propagate(param * 2 + param * 5);  // two uses: one gradient, summed
  EXPECT_EQ(taken, (std::vector<float>{6, 14}));
  EXPECT_FALSE(param.grad().defined());
}

namespace {

// 3 * x, whose backward makes the gradient where the engine wants it.
struct Tripled final : torch::autograd::Function<Tripled> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x) {
    ctx->save_for_backward({x});
    return x * 3;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    at::Tensor target = gradient_target(ctx->get_saved_variables()[0]);
    if (!target.defined()) return {grads[0] * 3};
    return {at::mul_out(target, grads[0], at::full({}, 3.0f))};
  }
};

}  // namespace

TEST(GradientHook, LendsRoomToWhatMakesTheGradient) {
  const at::Tensor param = leaf();
  at::Tensor target = at::zeros({2});
  const void* taken_from = nullptr;
  float sum = 0;
  bool lent = false;
  const GradientHook hook(
      param,
      [&](const at::Tensor& grad) {
        taken_from = grad.const_data_ptr();
        sum = grad.sum().item<float>();
      },
      [&] { return std::exchange(lent, true) ? at::Tensor() : target; });
  back_propagate(Tripled::apply(param));
  EXPECT_EQ(taken_from, target.const_data_ptr());
  EXPECT_EQ(sum, 6);
  lent = false;
  back_propagate(Tripled::apply(param) + Tripled::apply(param) * 2);  // the second is made elsewhere, autograd adds
  EXPECT_EQ(sum, 18);
  lent = false;
  const auto mine = torch::autograd::grad({Tripled::apply(param).sum()}, {param});
  EXPECT_FALSE(lent);  // they are the caller's
  EXPECT_EQ(mine[0].sum().item<float>(), 6);
}

TEST(GradientHook, LendsNothingThatAHookOfTheUserWouldSee) {
  const at::Tensor param = leaf();
  const at::Tensor target = at::zeros({2});
  const GradientHook hook(
      param, [](const at::Tensor&) {}, [&] { return target; });
  EXPECT_TRUE(gradient_target(param).defined());
  at::Tensor seen;
  param.register_hook([&](at::Tensor grad) { seen = std::move(grad); });
  EXPECT_FALSE(gradient_target(param).defined());
  back_propagate(Tripled::apply(param));
  EXPECT_NE(seen.const_data_ptr(), target.const_data_ptr());
}

TEST(GradientHook, HasNoRoomForTheParametersOfOthers) {
  const at::Tensor param = leaf();
  EXPECT_FALSE(gradient_target(param).defined());
  back_propagate(Tripled::apply(param));
  EXPECT_EQ(param.grad().sum().item<float>(), 6);
  const GradientHook hook(param, [](const at::Tensor&) {});
  EXPECT_FALSE(gradient_target(param).defined());
}

TEST(GradientHook, IsNotCalledForAParameterWithoutAGradient) {
  const at::Tensor param = leaf();
  const at::Tensor other = leaf();
  int calls = 0;
  const GradientHook hook(param, [&](const at::Tensor&) { ++calls; });
  back_propagate(other * 2);
  EXPECT_EQ(calls, 0);
}

TEST(GradientHook, LetsAutogradAccumulateAgainWhenItIsGone) {
  const at::Tensor param = leaf();
  {
    const GradientHook hook(param, [](const at::Tensor&) {});
    back_propagate(param * 3);
  }
  back_propagate(param * 4);
  EXPECT_EQ(param.grad().sum().item<float>(), 8);
}

TEST(GradientHook, ANewOneWorksBesideADeadOne) {
  const at::Tensor param = leaf();
  {
    const GradientHook dead(param, [](const at::Tensor&) { FAIL(); });
  }
  int calls = 0;
  const GradientHook hook(param, [&](const at::Tensor&) { ++calls; });
  back_propagate(param * 3);
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(param.grad().defined());
}

TEST(NodeHooks, CallInTheOrderOfBackwardCompleteBeforeBegin) {
  const at::Tensor x = leaf();
  NodeHooks hooks;
  std::string calls;
  const at::Tensor middle = x * 2;
  EXPECT_TRUE(hooks.before_backward_of(middle, [&] { calls += "begin middle, "; }));
  EXPECT_TRUE(hooks.when_gradient_complete(middle, [&] { calls += "middle complete, "; }));
  EXPECT_TRUE(hooks.when_gradient_complete(x, [&] { calls += "x complete, "; }));
  const at::Tensor out = middle * 3 + middle.sum();
  EXPECT_TRUE(hooks.before_backward_of(out, [&] { calls += "begin out, "; }));
  back_propagate(out);
  EXPECT_EQ(calls, "begin out, middle complete, begin middle, x complete, ");
}

TEST(NodeHooks, SayWhenNoGradientWillCome) {
  NodeHooks hooks;
  EXPECT_FALSE(hooks.when_gradient_complete(at::Tensor(), [] {}));
  EXPECT_FALSE(hooks.when_gradient_complete(at::ones({2}), [] {}));
  EXPECT_FALSE(hooks.before_backward_of(leaf().detach(), [] {}));
}

TEST(NodeHooks, AGraphWhosePassIsOverThrowsWhereAUnitBegan) {
  const at::Tensor x = leaf();
  NodeHooks hooks;
  int calls = 0;
  const at::Tensor inner = x * 2;
  const at::Tensor out = inner * 2;
  hooks.when_gradient_complete(inner, [&] { ++calls; });
  hooks.before_backward_of(out, [&] { ++calls; });
  hooks.clear();
  back_propagate(inner);  // only followed, made by no unit
  EXPECT_THAT(testing::message_of([&] { back_propagate(out); }), ::testing::HasSubstr("whose pass is over"));
  EXPECT_EQ(calls, 0);
}

TEST(NodeHooks, AreSilentWhenTheyAreGone) {
  const at::Tensor out = leaf() * 2;
  int calls = 0;
  {
    NodeHooks hooks;
    hooks.before_backward_of(out, [&] { ++calls; });
  }
  back_propagate(out);
  EXPECT_EQ(calls, 0);
}

namespace {

struct Keeps final : torch::autograd::FunctionPreHook {
  explicit Keeps(std::shared_ptr<int> what) : what_(std::move(what)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& grads) override { return grads; }
  std::shared_ptr<int> what_;
};

}  // namespace

TEST(NodeHooks, KeepNoGraphAlive) {
  NodeHooks hooks;
  const auto alive = std::make_shared<int>();
  {
    const at::Tensor out = leaf() * 2;
    out.grad_fn()->add_pre_hook(std::make_unique<Keeps>(alive));
    hooks.before_backward_of(out, [alive] {});
    EXPECT_EQ(alive.use_count(), 3);
  }
  EXPECT_EQ(alive.use_count(), 1);
}

TEST(NodeHooks, ForgetNodesThatAreGone) {
  NodeHooks hooks;
  int calls = 0;
  for (int i = 0; i < 50; ++i) {  // addresses come back
    const at::Tensor out = leaf() * 2;
    EXPECT_TRUE(hooks.before_backward_of(out, [&] { ++calls; }));
    if (i % 2 == 0) back_propagate(out);
  }
  EXPECT_EQ(calls, 25);
  hooks.clear();
}

TEST(NodeHooks, ALeafThatAUnitHandsThroughIsNotItsOutput) {
  NodeHooks hooks;
  EXPECT_FALSE(hooks.before_backward_of(leaf(), [] {}));
}

}  // namespace shoal
