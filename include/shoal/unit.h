// How a model is handed to the engine: named parameters in units, the pieces that are gathered and released together.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

namespace shoal {

struct Parameter {
  std::string name;
  at::Tensor tensor;        // a leaf; requires_grad() says whether it is trained
  int group = 0;            // index into EngineOptions::groups
  bool keep_dtype = false;  // stays in its own dtype though the config asks for bf16 or fp16
};

// Usually one transformer block; the embedding, the head and the rest are units too. Declare units in the order in
// which the model uses them. A tensor that appears in several units (tied weights) belongs to the first.
struct Unit {
  std::string name;
  std::vector<Parameter> params;
};

// A parameter group's own settings; what is not given comes from the config.
struct ParamGroup {
  std::optional<double> lr;
  std::optional<double> weight_decay;
};

}  // namespace shoal
