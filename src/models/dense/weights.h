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

// In place of the feed-forward part.
struct DenseMixture {
  at::Tensor router;       // [experts, hidden]
  at::Tensor gate_up;      // [experts, 2 ffn, hidden]: gate, then up
  at::Tensor down;         // [experts, hidden, ffn]
  at::Tensor shared_gate;  // [1, hidden]; the shared expert itself is gate, up and down below
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
  DenseMixture mixture;  // none of its matrices, nor of the shared expert, has an adapter
};

struct DenseWeights {
  at::Tensor embedding;  // [vocab, hidden]
  at::Tensor positions;  // [offset + max_positions, hidden]
  std::vector<DenseBlock> blocks;
  DenseNorm norm;
  at::Tensor head;  // [vocab, hidden]; the embedding itself when tied
};

// What adapters keep of a token in a block for backward.
struct DenseAdapters {
  bool frozen_base = false;  // the model has some, in this block or in others
  // As it is; what dropout made of it is counted by its width.
  bool read_attention_input = false, read_attended = false, read_ffn_input = false, read_ffn_product = false;
  int64_t dropped = 0;
  int64_t ranks = 0;  // of all of them together
};
DenseAdapters adapters_of(const DenseBlock& block, bool frozen_base);

DenseWeights declare_dense_weights(const DenseConfig& config, ParameterList& list);

// The parameters of all experts of a layer together, which files have one by one.
StoredPieces dense_pieces(const DenseConfig& config);

}  // namespace shoal::models
