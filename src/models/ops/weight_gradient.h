// Gradients of matrices, made where the engine keeps them: see [Note: gradients made where they are kept] in
// engine/graph_hooks.h. The bits are those of a gradient made anywhere.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace shoal::models::ops {

// `make` computes the gradient of `weight` into what it is given, or into a tensor of its own where that is undefined.
at::Tensor make_weight_gradient(const at::Tensor& weight, const std::function<at::Tensor(const at::Tensor&)>& make);

// a b is the gradient.
at::Tensor weight_gradient(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b);

}  // namespace shoal::models::ops
