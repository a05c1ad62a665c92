// What LoRA adds to matrices of a model: see lora.h. Families call it behind the matrices that adapters stand beside.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "models/layers.h"
#include "models/ops/linear.h"

namespace shoal::models {

// Undefined where the matrix has none.
struct Adapter {
  at::Tensor a;  // [rank, in]
  at::Tensor b;  // [out, rank]
  double scale = 1;
  double dropout = 0;

  bool is_there() const { return a.defined(); }
};

// A matrix as ops::linears takes it, with its adapter. They refer to what they are made of.
struct AdaptedLinear {
  const at::Tensor& weight;
  const at::Tensor& bias;
  const Adapter& adapter;
};

// x [.., in] times each matrix and, where it has an adapter, y + scale * (dropout(x) a^T) b^T of that. No matrix of the
// base's size is made.
std::vector<at::Tensor> adapted_linears(ops::Matmul how, const ops::Operand& x, const std::vector<AdaptedLinear>& by,
                                        const Randomness& randomness);

}  // namespace shoal::models
