#include "models/ops/origin.h"

#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "models/ops/activation.h"
#include "models/ops/norm.h"
#include "unit/models/ops/grads.h"

namespace shoal::models::ops {

using testing::normal_tensor;

TEST(Origin, GivesTheBitsOfEachOperationWithoutAGraph) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = normal_tensor({3, 5, 48}, 1, dtype).set_requires_grad(true);
    const at::Tensor y = normal_tensor({3, 5, 48}, 2, dtype);
    const at::Tensor weight = normal_tensor({48}, 3, dtype), bias = normal_tensor({48}, 4, dtype);
    const std::vector<std::pair<Origin, at::Tensor>> cases = {
        {{Origin::Op::rms_norm, {x, weight}, 1e-5}, rms_norm(x, weight, 1e-5)},
        {{Origin::Op::rms_norm, {x, weight}, 1e-5}, add_rms_norm(x, at::zeros_like(x), weight, 1e-5).norm},
        {{Origin::Op::layer_norm, {x, weight, bias}, 1e-6}, layer_norm(x, weight, bias, 1e-6)},
        {{Origin::Op::rms_norm_one, {x, weight}, 1e-5}, rms_norm_one(x, weight, 1e-5)},
        {{Origin::Op::swiglu, {x, y}}, swiglu(x, y)},
        {{Origin::Op::gelu_exact, {x}}, gelu(x, true)},
        {{Origin::Op::gelu_tanh, {x}}, gelu(x, false)},
        {activation_origin(x, Activation::silu), activate(x, Activation::silu)},
        {activation_origin(x, Activation::gelu_tanh), activate(x, Activation::gelu_tanh)},
        {activation_origin(x, Activation::gelu_exact), activate(x, Activation::gelu_exact)},
        {gated_origin(x, y, Activation::silu), activate_gated(x, y, Activation::silu)},
        {gated_origin(x, y, Activation::gelu_tanh), activate_gated(x, y, Activation::gelu_tanh)},
        {gated_origin(x, y, Activation::gelu_exact), activate_gated(x, y, Activation::gelu_exact)},
        {gated_origin(x, y, Activation::relu), activate_gated(x, y, Activation::relu)},
    };
    for (const auto& [origin, expected] : cases) {
      const at::Tensor again = make_again(origin);
      EXPECT_TRUE(again.equal(expected)) << static_cast<int>(origin.op);
      EXPECT_FALSE(again.requires_grad());
    }
  }
}

TEST(Origin, ReluKeepsItsResult) {
  EXPECT_EQ(activation_origin(normal_tensor({3}, 1), Activation::relu).op, Origin::Op::none);
}

}  // namespace shoal::models::ops
