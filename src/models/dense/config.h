// Decoders of Hugging Face: one model with switches. A family (dense/families.cpp) sets what config.json does not say;
// the rest is read here. Some layers, or all, may have experts in place of the dense feed-forward part.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/dense/rope.h"
#include "models/hf_config.h"
#include "models/ops/activation.h"

namespace shoal::models {

enum class NormKind : uint8_t {
  rms,
  rms_one,  // Gemma: by 1 + weight, in fp32
  layer,    // with weight and bias
};

// Where q and k are normed: not at all, each head by itself, or all heads of a token together.
enum class QkNorm : uint8_t { none, heads, whole };

// How q, k and v lie in the checkpoint.
enum class QkvLayout : uint8_t {
  separate,
  side_by_side,  // one matrix: all of q, then k, then v
  by_group,      // one matrix: for each head of k its heads of q, then k, then v
};

using ops::Activation;

// What differs from layer to layer.
struct DenseLayer {
  int64_t window = 0;  // a token attends to so many, itself included; 0: to all before it
  enum class Rope : uint8_t { none, global, local } rope = Rope::global;
  bool experts = false;  // its feed-forward part is a mixture

  bool operator==(const DenseLayer&) const = default;
};

// Mixtures of experts: a router sends each token to the experts that it finds most probable.
struct DenseExperts {
  int64_t count = 0;  // of a layer; 0: the model has none
  int64_t per_token = 0;
  int64_t ffn = 0;          // of each
  bool normalizes = false;  // the weights of a token's experts sum up to 1
  int64_t shared_ffn = 0;   // of one more that all tokens go to, behind a gate; 0: there is none
  double balance = 0;       // what the auxiliary loss counts; 0: there is none
};

struct DenseConfig {
  std::string model_type;
  int64_t vocab = 0, hidden = 0, ffn = 0, layers = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t max_positions = 0;
  std::string positions_by = "max_position_embeddings";  // the key that decided
  double norm_eps = 1e-6;
  double initializer_range = 0.02;
  double attention_dropout = 0, embedding_dropout = 0, residual_dropout = 0;
  // Its row of the embedding begins at 0, and looking it up gives no gradient; a tied head does.
  std::optional<int64_t> padding_token;
  bool tied = false;  // the head is the embedding

  // Switches.
  NormKind norm = NormKind::rms;
  bool norm_before = true;   // attention and the feed-forward part read a normed input
  bool norm_after = false;   // what they give is normed before it is added
  bool parallel = false;     // both read the block's input, and are added together
  bool shared_norm = false;  // parallel: through one norm
  QkNorm qk_norm = QkNorm::none;
  QkvLayout qkv_layout = QkvLayout::separate;
  bool qkv_bias = false, o_bias = false, ffn_bias = false;
  bool gated = true;
  bool gate_beside_up = false;  // one matrix: gate, then up
  Activation activation = Activation::silu;
  int64_t position_offset = -1;  // learned positions, the first of which stands in this row; -1: there are none
  double embedding_scale = 1;
  bool rounds_embedding_scale = false;               // to the dtype of the weights, before it multiplies
  double residual_scale = 1;                         // of what attention and the feed-forward part give
  double attention_scale = 0;                        // of scores; 0: 1 / sqrt(head_dim)
  double attention_softcap = 0, logits_softcap = 0;  // c: c tanh(x / c); 0: none
  double logits_divisor = 1;
  std::vector<DenseLayer> each_layer;  // of all layers
  DenseExperts experts;
  RopeConfig rope;
  RopeConfig local_rope;  // of layers that say so

  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
};

// Throws an Error that names key and value where the model would not be computed as the config means it.
DenseConfig read_dense_config(const HfConfig& config);

// The config.json to export: what was read; with the rotary keys as transformers 4 and 5 both find them, where the
// family has one set of them.
std::string export_dense_config(const HfConfig& config, const DenseConfig& read);

}  // namespace shoal::models
