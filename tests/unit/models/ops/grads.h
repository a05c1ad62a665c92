// Runs a function of tensors and gives its results and the gradients of its inputs, to compare two ways of computing.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

namespace shoal::testing {

using Tensors = std::vector<at::Tensor>;

inline at::Tensor normal_tensor(at::IntArrayRef sizes, uint64_t seed, at::ScalarType dtype = at::kFloat) {
  return at::empty(sizes).normal_(0, 1, at::detail::createCPUGenerator(seed)).to(dtype);
}

// Results, then gradients of the inputs, where each result's gradient is a fixed pattern of its shape.
inline Tensors results_and_grads(const Tensors& inputs, const std::function<Tensors(const Tensors&)>& function) {
  Tensors leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.detach().clone());
    if (at::isFloatingType(input.scalar_type())) leaves.back().set_requires_grad(true);
  }
  const Tensors results = function(leaves);
  Tensors grads;
  for (const at::Tensor& result : results) {
    grads.push_back(at::arange(result.numel(), result.options().dtype(at::kDouble))
                        .sin()
                        .reshape(result.sizes())
                        .to(result.dtype()));
  }
  torch::autograd::backward(results, grads);
  Tensors all;
  for (const at::Tensor& result : results) all.push_back(result.detach());
  for (const at::Tensor& leaf : leaves) {
    if (leaf.requires_grad()) all.push_back(leaf.grad());
  }
  return all;
}

}  // namespace shoal::testing
