// The model that the exactness tests train: small, and full of what goes wrong. An embedding tied to the head, a block
// used twice, dropout, a frozen parameter, odd sizes, parameters of one and of no element, a unit that only some ranks
// use in some steps, gradients that are made where they are kept. Every rank has data of its own.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "shoal/engine.h"

namespace shoal::testing {

inline constexpr int64_t kVocab = 37;
inline constexpr int64_t kWidth = 24;

struct MatrixModel {
  at::Tensor wte;                       // [vocab, width], tied to the head
  at::Tensor w1, b1, w2, shift, scale;  // block "twice": shift is frozen, scale has one element
  at::Tensor w, gain, none;             // block "drop": none has no element
  at::Tensor sometimes;                 // unit "sometimes"
  at::Tensor bias;                      // head

  explicit MatrixModel(uint64_t seed = 1);

  std::vector<Unit> units() const;
  static std::vector<std::string> names();
  std::vector<at::Tensor> tensors() const;

  at::Tensor twice(const at::Tensor& x) const;
  at::Tensor drop(const at::Tensor& x, double probability, at::Generator& random) const;
  at::Tensor head(const at::Tensor& x) const;
};

// Token ids of one micro-batch and the ids to predict: a function of step, micro-step and rank alone.
struct Batch {
  at::Tensor ids;     // [sample, time]
  at::Tensor labels;  // [sample * time]
};
Batch batch_of(int64_t step, int64_t micro_step, int rank, int64_t samples = 2, int64_t time = 5);

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels);

struct ForwardOptions {
  double dropout = 0.25;
  bool recompute = false;
  bool use_sometimes = true;
};

// One forward through the engine; returns the loss.
at::Tensor forward(Engine& engine, const MatrixModel& model, const Batch& batch, const ForwardOptions& options);

}  // namespace shoal::testing
