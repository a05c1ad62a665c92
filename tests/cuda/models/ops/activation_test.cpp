#include "models/ops/activation.h"

#include <cmath>

#include "cuda/tensors.h"
#include "models/ops/swiglu_linear.h"

namespace shoal {

using models::ops::gelu;
using models::ops::Matmul;
using models::ops::swiglu;
using models::ops::swiglu_linear;

namespace {

using FusedActivation = OnGpuTensors;

std::vector<int64_t> lengths() {
  if (tests_are_small()) return {1, 9, 2048};
  return {1, 7, 8, 255, 4096, 100003, 1 << 20};
}

// What goes into the activation function. A lone element is positive: where the derivative passes through zero, at
// -1.28 of SiLU, one element has no digits to compare.
at::Tensor activation_input(int64_t length, at::ScalarType dtype) {
  const at::Tensor x = on_gpu({length}, dtype, 3);
  return length == 1 ? x.abs() : x;
}

}  // namespace

TEST_F(FusedActivation, SwigluIsNearFp64) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t length : lengths()) {
      expect_near_reference(
          {activation_input(length, dtype), on_gpu({length}, dtype)},
          [](const Tensors& t) -> Tensors { return {swiglu(t[0], t[1])}; },
          [](const Tensors& t) -> Tensors { return {t[0].mul(t[0].sigmoid()).mul(t[1])}; }, tolerance_of(dtype),
          words_of("swiglu", dtype, {length}));
    }
  }
}

TEST_F(FusedActivation, SwigluLinearIsNearFp64AndMakesTheProductAgain) {
  const int64_t less = tests_are_small() ? 2 : 0;  // racecheck breaks in cuBLAS's kernels for aligned rows
  for (const at::ScalarType dtype : kDtypes) {
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{3, 5, 7}, std::vector<int64_t>{2, 64 - less, 256 - less}}) {
      const Tensors inputs = {on_gpu(shape, dtype), on_gpu(shape, dtype),
                              on_gpu({24 - less, shape.back()}, dtype, 0.1)};
      const Function fused = [](const Tensors& t) -> Tensors {
        return {swiglu_linear(Matmul::plain, t[0], t[1], t[2])};
      };
      expect_near_reference(
          inputs, fused,
          [](const Tensors& t) -> Tensors { return {at::linear(t[0].mul(t[0].sigmoid()).mul(t[1]), t[2])}; },
          2 * tolerance_of(dtype), words_of("swiglu_linear", dtype, shape));
      const Tensors kept = run_with_grads(
          inputs, [](const Tensors& t) -> Tensors { return {at::linear(swiglu(t[0], t[1]), t[2])}; }, dtype);
      const Tensors made_again = run_with_grads(inputs, fused, dtype);
      for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(kept[i].equal(made_again[i])) << i;
    }
  }
}

TEST_F(FusedActivation, GeluIsNearFp64InBothForms) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t length : lengths()) {
      for (const bool exact : {false, true}) {
        expect_near_reference(
            {activation_input(length, dtype)}, [&](const Tensors& t) -> Tensors { return {gelu(t[0], exact)}; },
            [&](const Tensors& t) -> Tensors { return {at::gelu(t[0], exact ? "none" : "tanh")}; }, tolerance_of(dtype),
            words_of(exact ? "exact gelu" : "tanh gelu", dtype, {length}));
      }
    }
  }
}

TEST_F(FusedActivation, MemoryMayLieAtAnyElement) {
  for (const at::ScalarType dtype : kDtypes) {
    expect_near_reference(
        {unaligned(on_gpu({4096}, dtype, 3)), unaligned(on_gpu({4096}, dtype))},
        [](const Tensors& t) -> Tensors {
          return {swiglu(t[0], t[1]), gelu(t[0], true), gelu(t[0], false)};
        },
        [](const Tensors& t) -> Tensors {
          return {t[0].mul(t[0].sigmoid()).mul(t[1]), at::gelu(t[0], "none"), at::gelu(t[0], "tanh")};
        },
        2 * tolerance_of(dtype), words_of("unaligned", dtype, {4096}));
  }
}

// Also where it is small: far to the left of zero the error is small beside the value itself.
TEST_F(FusedActivation, EveryValueOfTheExactGeluIsNearFp64) {
  const at::Tensor x = at::linspace(-9, 9, 18001, at::TensorOptions(at::kCUDA).dtype(at::kFloat));
  const at::Tensor in_fp64 = x.to(at::kDouble);
  const at::Tensor wanted = in_fp64.mul(0.5).mul(at::erfc(in_fp64.mul(-std::sqrt(0.5))));
  const at::Tensor error = gelu(x, true).to(at::kDouble).sub(wanted).abs();
  EXPECT_LT(error.max().item<double>(), 6e-7);
  EXPECT_LT(error.div(wanted.abs().clamp_min(1e-37)).max().item<double>(), 1e-5);
}

TEST_F(FusedActivation, StaysFiniteFarOut) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::tensor({-3e38f, -1e20f, -300.0f, -88.0f, 0.0f, 88.0f, 300.0f}).to(at::kCUDA).to(dtype);
    const Tensors gated = run_with_grads(
        {x, at::ones_like(x)}, [](const Tensors& t) -> Tensors { return {swiglu(t[0], t[1])}; }, dtype);
    for (const at::Tensor& tensor : gated) EXPECT_TRUE(tensor.isfinite().all().item<bool>()) << tensor;
    EXPECT_EQ(gated[0][0].item<float>(), 0);
    EXPECT_NEAR(gated[0][6].item<float>(), 300, 1);
    const at::Tensor far = at::tensor({-1e10f, -300.0f, 300.0f}).to(at::kCUDA).to(dtype);
    for (const bool exact : {false, true}) {
      const Tensors all = run_with_grads(
          {far}, [&](const Tensors& t) -> Tensors { return {gelu(t[0], exact)}; }, dtype);
      for (const at::Tensor& tensor : all) EXPECT_TRUE(tensor.isfinite().all().item<bool>()) << tensor;
    }
  }
}

}  // namespace shoal
