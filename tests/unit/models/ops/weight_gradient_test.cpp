#include "models/ops/weight_gradient.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "engine/graph_hooks.h"

namespace shoal::models::ops {
namespace {

TEST(WeightGradient, IsMadeInTheRoomThatTheEngineLends) {
  const at::Tensor a = at::randn({3, 4}), b = at::randn({4, 5}), target = at::zeros({3, 5});
  const at::Tensor weight = at::zeros({3, 5}).set_requires_grad(true);
  const at::NoGradGuard in_backward;
  EXPECT_TRUE(weight_gradient(weight, a, b).equal(at::mm(a, b)));
  const GradientHook hook(
      weight, [](const at::Tensor&) {}, [&] { return target; });
  EXPECT_EQ(weight_gradient(weight, a, b).const_data_ptr(), target.const_data_ptr());
  EXPECT_TRUE(target.equal(at::mm(a, b)));
}

TEST(WeightGradient, ThatIsDifferentiatedItselfIsMadeElsewhere) {
  const at::Tensor a = at::randn({3, 4}).set_requires_grad(true), b = at::randn({4, 5}), target = at::zeros({3, 5});
  const at::Tensor weight = at::zeros({3, 5}).set_requires_grad(true);
  const GradientHook hook(
      weight, [](const at::Tensor&) {}, [&] { return target; });
  const at::Tensor made = weight_gradient(weight, a, b);
  EXPECT_NE(made.const_data_ptr(), target.const_data_ptr());
  EXPECT_TRUE(made.requires_grad());
}

}  // namespace
}  // namespace shoal::models::ops
