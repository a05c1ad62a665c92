// The second half of a SwiGLU layer: (silu(gate) * up) weight^T. On a GPU the product is not kept for backward: the
// pass that computes the gradients of gate and up makes it again, to the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/ops/linear.h"

namespace shoal::models::ops {

// gate, up [..., ffn], weight [out, ffn]. In fp8 the product is kept, in 8 bits.
at::Tensor swiglu_linear(Matmul how, const at::Tensor& gate, const at::Tensor& up, const at::Tensor& weight);

}  // namespace shoal::models::ops
