// A matmul as the models' own operations compute it: its backward makes the weight's gradient where the engine keeps
// it. See [Note: gradients made where they are kept] in engine/graph_hooks.h.
#pragma once

#include <ATen/core/Tensor.h>

namespace shoal::testing {

at::Tensor own_linear(const at::Tensor& x, const at::Tensor& weight);

}  // namespace shoal::testing
