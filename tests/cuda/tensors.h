// What tests of the models' operations on a GPU share: fresh inputs, the same function on them in their dtype and in
// fp64, and the error between the two, results and gradients. Memory that the library hands out holds NaN.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "cuda/gpu.h"
#include "cuda/torch_gpu.h"

namespace shoal {

using Tensors = std::vector<at::Tensor>;
using Function = std::function<Tensors(const Tensors&)>;

inline const std::vector<at::ScalarType> kDtypes = {at::kFloat, at::kBFloat16, at::kHalf};

// The share of a result's norm that one rounding to the dtype may cost, with room for two or three of them.
inline double tolerance_of(at::ScalarType dtype) {
  if (dtype == at::kBFloat16) return 4e-3;
  return dtype == at::kHalf ? 5e-4 : 2e-6;
}

class OnGpuTensors : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 1); }
  void SetUp() override {
    if (const std::string reason = why_no_gpu(); !reason.empty()) GTEST_SKIP() << reason;
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
    at::globalContext().setDeterministicFillUninitializedMemory(true);
    at::manual_seed(std::random_device()());
  }
};

inline at::Tensor on_gpu(at::IntArrayRef sizes, at::ScalarType dtype, double scale = 1) {
  return at::randn(sizes, at::TensorOptions(at::kCUDA).dtype(at::kFloat)).mul(scale).to(dtype);
}

// The same values at an address that allows no access of 16 bytes.
inline at::Tensor unaligned(const at::Tensor& x) {
  const at::Tensor memory = at::empty({x.numel() + 1}, x.options());
  const at::Tensor moved = memory.narrow(0, 1, x.numel()).view(x.sizes());
  moved.copy_(x);
  return moved;
}

// Results, then gradients of the floating inputs; each result's gradient is a pattern rounded to `grads_like`.
inline Tensors run_with_grads(const Tensors& inputs, const Function& function, at::ScalarType grads_like) {
  Tensors leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.detach());
    if (at::isFloatingType(input.scalar_type())) leaves.back().set_requires_grad(true);
  }
  const Tensors results = function(leaves);
  Tensors grads;
  for (const at::Tensor& result : results) {
    // Squares: their cosines have no period, so that sums over rows do not cancel.
    grads.push_back(at::arange(result.numel(), result.options().dtype(at::kDouble))
                        .add(0.5)
                        .square()
                        .mul(0.01)
                        .cos()
                        .reshape(result.sizes())
                        .to(grads_like)
                        .to(result.scalar_type()));
  }
  torch::autograd::backward(results, grads);
  Tensors all;
  for (const at::Tensor& result : results) all.push_back(result.detach());
  for (const at::Tensor& leaf : leaves) {
    if (leaf.requires_grad()) all.push_back(leaf.grad());
  }
  return all;
}

// Of the norm. What rounding to fp16 costs near zero, half of 2^-24 an element, is no error: beside one small element
// it would be much. NaN, where a kernel left one, is below no limit.
inline double relative_error(const at::Tensor& a, const at::Tensor& reference) {
  const at::Tensor wanted = reference.to(at::kDouble);
  const double norm = wanted.norm().item<double>();
  const double difference = a.to(at::kDouble).sub(wanted).norm().item<double>();
  const double rounding = a.scalar_type() == at::kHalf ? std::sqrt(static_cast<double>(a.numel())) * 0x1p-25 : 0;
  const double error = difference <= rounding ? 0 : difference - rounding;
  return norm == 0 ? error : error / norm;
}

// `fused` in the inputs' dtype against `reference` in fp64, and against itself once more, bit by bit.
inline void expect_near_reference(const Tensors& inputs, const Function& fused, const Function& reference,
                                  double tolerance, const std::string& what) {
  at::ScalarType dtype = inputs[0].scalar_type();
  Tensors in_fp64;
  for (const at::Tensor& input : inputs) {
    in_fp64.push_back(at::isFloatingType(input.scalar_type()) ? input.to(at::kDouble) : input);
  }
  const Tensors given = run_with_grads(inputs, fused, dtype);
  const Tensors again = run_with_grads(inputs, fused, dtype);
  const Tensors wanted = run_with_grads(in_fp64, reference, dtype);
  ASSERT_EQ(given.size(), wanted.size()) << what;
  for (size_t i = 0; i < given.size(); ++i) {
    EXPECT_EQ(given[i].sizes(), wanted[i].sizes()) << what << ", tensor " << i;
    EXPECT_LT(relative_error(given[i], wanted[i]), tolerance) << what << ", tensor " << i;
    EXPECT_TRUE(given[i].equal(again[i])) << what << ", tensor " << i << " differs in a second run";
  }
}

inline std::string words_of(const std::string& name, at::ScalarType dtype, at::IntArrayRef sizes) {
  std::string words = name + " " + c10::toString(dtype);
  for (const int64_t size : sizes) words += " " + std::to_string(size);
  return words;
}

}  // namespace shoal
