#include "models/ops/activation.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/silu.h>

#include "unit/models/ops/same.h"

namespace shoal::models::ops {

using testing::expect_same;
using testing::normal_tensor;
using testing::Tensors;

TEST(Swiglu, OnTheCpuIsTheLibrarysSiluTimesUp) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    expect_same(
        {normal_tensor({3, 7}, 1, dtype), normal_tensor({3, 7}, 2, dtype)},
        [](const Tensors& t) -> Tensors { return {swiglu(t[0], t[1])}; },
        [](const Tensors& t) -> Tensors { return {at::silu(t[0]).mul(t[1])}; });
  }
}

TEST(GeluOp, OnTheCpuIsTheLibrarysInBothForms) {
  for (const bool exact : {false, true}) {
    expect_same(
        {normal_tensor({3, 7}, 1)}, [&](const Tensors& t) -> Tensors { return {gelu(t[0], exact)}; },
        [&](const Tensors& t) -> Tensors { return {at::gelu(t[0], exact ? "none" : "tanh")}; });
  }
  const at::Tensor x = normal_tensor({100}, 1);
  EXPECT_FALSE(gelu(x, true).equal(gelu(x, false)));
}

TEST(Activate, GatesByEachFunction) {
  const std::vector<std::pair<Activation, std::function<at::Tensor(const at::Tensor&)>>> cases = {
      {Activation::silu, [](const at::Tensor& x) { return at::silu(x); }},
      {Activation::gelu_tanh, [](const at::Tensor& x) { return at::gelu(x, "tanh"); }},
      {Activation::gelu_exact, [](const at::Tensor& x) { return at::gelu(x, "none"); }},
      {Activation::relu, [](const at::Tensor& x) { return x.clamp_min(0); }}};
  for (const auto& [activation, plain] : cases) {
    const Tensors x = {normal_tensor({3, 7}, 1), normal_tensor({3, 7}, 2)};
    expect_same(
        x,
        [&, by = activation](const Tensors& t) -> Tensors {
          return {activate(t[0], by), activate_gated(t[0], t[1], by)};
        },
        [&, by = plain](const Tensors& t) -> Tensors {
          return {by(t[0]), by(t[0]).mul(t[1])};
        });
  }
}

}  // namespace shoal::models::ops
