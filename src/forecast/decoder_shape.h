// What a forecast must know of a language model: how wide and how deep it is. A family of models says so of itself
// (models/language_model.h); units_of() makes parameters of it where there is no model to ask, as for points that
// others have published. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout/param_spec.h"

namespace shoal::forecast {

struct DecoderShape {
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t q_width = 0;   // heads * dim
  int64_t kv_width = 0;  // of keys, and of values
  int64_t ffn = 0;
  bool gated = true;  // three matrices in the feed-forward part: gate, up, down; else two
  int64_t vocab = 0;
  bool tied = false;  // the head is the embedding
  // Of each layer: a token attends to so many, itself included; 0: to all before it. Empty: all layers see all.
  std::vector<int64_t> windows = {};
  // Elements of adapters beside matrices that are frozen; 0: all are trained.
  int64_t adapter_numel = 0;

  // Mixtures of experts, whose `ffn` is the width of all experts that a token goes to, the shared one among them.
  int64_t routed_numel = 0;  // of all layers' feed-forward parts: matrix elements that a token is multiplied with
  int64_t most_numel = 0;    // matrix elements of the largest block, of all its experts

  // Elements of matrices that a token is multiplied with: of a block, and of the head.
  int64_t attention_numel() const { return hidden * (2 * q_width + 2 * kv_width); }
  int64_t block_numel() const { return attention_numel() + (gated ? 3 : 2) * hidden * ffn; }
  int64_t all_blocks_numel() const {
    return routed_numel > 0 ? layers * attention_numel() + routed_numel : layers * block_numel();
  }
  int64_t head_numel() const { return hidden * vocab; }
  // Parameters but for norms and biases, of a model without experts.
  int64_t numel() const { return layers * block_numel() + (tied ? 1 : 2) * head_numel(); }
  // Tokens that one of `time` attends to, in the mean over tokens and layers.
  double attended(int64_t time) const;

  bool operator==(const DecoderShape&) const = default;
};

// FLOPs that a token of training costs by the field's count, forward and backward, nothing computed again: 6 a matrix
// element (4 where it is frozen), and attention over half of `time` tokens, or what of them lies within windows.
double model_flops_a_token(const DecoderShape& shape, int64_t time);

// An embedding, blocks and a head, a unit each, as models/ declares them.
std::vector<UnitSpec> units_of(const DecoderShape& shape, DType dtype);

}  // namespace shoal::forecast
