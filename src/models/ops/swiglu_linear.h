// The second half of a SwiGLU layer: (silu(gate) * up) weight^T. On a GPU the product is not kept for backward: the
// pass that computes the gradients of gate and up makes it again, to the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/ops/linear.h"

namespace shoal::models::ops {

// What of the product is kept for backward where it is not made again anyway: itself, or nothing.
enum class Product : uint8_t { kept, remade };

// gate, up [..., ffn], weight [out, ffn]. In fp8 a product that is kept is kept in 8 bits.
at::Tensor swiglu_linear(Matmul how, const at::Tensor& gate, const at::Tensor& up, const at::Tensor& weight,
                         Product product = Product::kept);

}  // namespace shoal::models::ops
