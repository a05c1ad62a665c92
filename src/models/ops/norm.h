// RMSNorm and LayerNorm over the last dimension, and both with the residual addition before them. On a GPU each is one
// pass forward and one backward (and the sum of the weights' gradient), which keeps its input and one or two numbers a
// row.
#pragma once

#include <ATen/core/Tensor.h>

namespace shoal::models::ops {

struct AddedNorm {
  at::Tensor sum;   // x + residual
  at::Tensor norm;  // of the sum
};
struct ForkedNorm {
  at::Tensor x;  // as it was given, for what uses it beside the norm: backward adds their gradients in its one pass
  at::Tensor norm;
};

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
ForkedNorm fork_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
AddedNorm add_rms_norm(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight, double eps);

// By 1 + weight, as Gemma does it: the sum and the norm in fp32, rounded once.
at::Tensor rms_norm_one(const at::Tensor& x, const at::Tensor& weight, double eps);

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps);
ForkedNorm fork_layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps);
AddedNorm add_layer_norm(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                         const at::Tensor& bias, double eps);

}  // namespace shoal::models::ops
