// What LoRA adds to a matrix of a model: see lora.h. Families call it behind the matrix that it stands beside.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/layers.h"
#include "models/ops/origin.h"

namespace shoal::models {

// Undefined where the matrix has none.
struct Adapter {
  at::Tensor a;  // [rank, in]
  at::Tensor b;  // [out, rank]
  double scale = 1;
  double dropout = 0;

  bool is_there() const { return a.defined(); }
};

// y + scale * (dropout(x) a^T) b^T, where y [.., out] is what the matrix made of x [.., in]; y itself without an
// adapter. No matrix of the base's size is made.
at::Tensor add_adapter(const at::Tensor& y, const ops::Operand& x, const Adapter& adapter,
                       const Randomness& randomness);

}  // namespace shoal::models
