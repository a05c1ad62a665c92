// What stands between the matrices of a feed-forward layer. On a GPU each is one pass forward and one backward, and
// keeps its inputs only.
#pragma once

#include <ATen/core/Tensor.h>

namespace shoal::models::ops {

// silu(gate) * up.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

// Exact, or by tanh.
at::Tensor gelu(const at::Tensor& x, bool exact);

}  // namespace shoal::models::ops
