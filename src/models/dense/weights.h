// The parameters of a dense decoder, unit by unit, by the names and in the shapes of its checkpoints.
#pragma once

#include <vector>

#include "models/dense/config.h"
#include "models/parameter_list.h"

namespace shoal::models {

// Undefined where the model has none.
struct DenseNorm {
  at::Tensor weight, bias;
};
struct DenseMatrix {
  at::Tensor weight, bias;  // [out, in], [out]
  Adapter adapter = {};
};

struct DenseBlock {
  DenseNorm attention_norm, attention_after;  // [hidden]
  DenseMatrix q, k, v;                        // or, as one matrix:
  DenseMatrix qkv;
  at::Tensor q_norm, k_norm;  // [dim], or [width] where all heads are normed together
  DenseMatrix o;
  DenseNorm ffn_norm, ffn_after;
  DenseMatrix gate, up;  // up alone where nothing is gated; or, as one matrix:
  DenseMatrix gate_up;
  DenseMatrix down;
};

struct DenseWeights {
  at::Tensor embedding;  // [vocab, hidden]
  at::Tensor positions;  // [offset + max_positions, hidden]
  std::vector<DenseBlock> blocks;
  DenseNorm norm;
  at::Tensor head;  // [vocab, hidden]; the embedding itself when tied
};

// What adapters keep of a token in a block for backward, where the base is frozen.
struct DenseAdapters {
  bool are_there = false;
  // As it is; what dropout made of it is counted by its width.
  bool read_attention_input = false, read_attended = false, read_ffn_input = false, read_ffn_product = false;
  int64_t dropped = 0;
  int64_t ranks = 0;  // of all of them together
};
DenseAdapters adapters_of(const DenseBlock& block);
// Of the block with most of them.
DenseAdapters most_adapters(const DenseWeights& weights);

DenseWeights declare_dense_weights(const DenseConfig& config, ParameterList& list);

}  // namespace shoal::models
