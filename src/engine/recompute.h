// Activation recompute: a part of the model whose forward keeps no graph and runs again in backward.
// See [Note: recompute inside backward] in passes.h.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "engine/passes.h"

namespace shoal {

using RecomputedForward = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// The backward of the result throws if `passes` is gone by then; `generator` lives as long as `passes`.
std::vector<at::Tensor> recompute(Passes& passes, at::Generator& generator, const std::vector<at::Tensor>& inputs,
                                  const RecomputedForward& forward);

}  // namespace shoal
