// How a model is handed to the engine: named parameters in units, the pieces that are gathered and released together.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shoal/dtype.h"

namespace shoal {

// Where a parameter's first values come from when no rank should hold it whole: a file, or random numbers that are a
// function of the element's index. Every rank reads the ranges it keeps, so the values must not depend on the rank.
class ValueSource {
 public:
  virtual ~ValueSource() = default;
  // Elements [begin, begin + numel) of the parameter, in row-major order. Several threads may read at a time.
  virtual void read(int64_t begin, int64_t numel, float* values) const = 0;
};

struct Parameter {
  std::string name;
  at::Tensor tensor;                                    // a leaf; requires_grad() says whether it is trained
  int group = 0;                                        // index into EngineOptions::groups
  bool keep_dtype = false;                              // stays in its own dtype though the config asks for another
  std::shared_ptr<const ValueSource> source = nullptr;  // first values; null: the tensor's own. Shared with the model.
};

// A parameter of this shape without memory, for models that are larger than a rank: it gets its values from
// Parameter::source when an engine takes it over. Touching it before throws.
at::Tensor make_placeholder(const std::vector<int64_t>& shape, DType dtype = DType::f32, bool trainable = true);

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
