// What stands between the matrices of a feed-forward layer. On a GPU each is one pass forward and one backward, and
// keeps its inputs only.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace shoal::models::ops {

// silu(gate) * up.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

// Exact, or by tanh.
at::Tensor gelu(const at::Tensor& x, bool exact);

enum class Activation : uint8_t { silu, gelu_tanh, gelu_exact, relu };

at::Tensor activate(const at::Tensor& x, Activation activation);
// activate(gate) * up. Of others than silu the GPU makes two passes.
at::Tensor activate_gated(const at::Tensor& gate, const at::Tensor& up, Activation activation);

}  // namespace shoal::models::ops
