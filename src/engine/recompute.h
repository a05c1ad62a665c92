// Activation recompute: a part of the model whose forward keeps no graph and runs again in backward.
// See [Note: recompute inside backward] in passes.h.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "engine/host_inputs.h"
#include "engine/passes.h"

namespace shoal {

using RecomputedForward = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// They live equally long.
struct RecomputeParts {
  Passes& passes;
  at::Generator& generator;
  HostInputs* host_inputs = nullptr;  // null: inputs are kept where they are
};

// The backward of the result throws if the parts are gone by then.
std::vector<at::Tensor> recompute(const RecomputeParts& parts, const std::vector<at::Tensor>& inputs,
                                  const RecomputedForward& forward);

}  // namespace shoal
