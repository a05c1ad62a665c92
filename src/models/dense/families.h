// The table of families: what config.json does not say, and how each calls its parameters. A new one is a row.
#pragma once

#include <span>

#include "models/dense/config.h"
#include "models/family.h"

namespace shoal::models {

// How a checkpoint names the parameters. "": the model has none of these.
struct DenseNames {
  const char* embedding = "model.embed_tokens";
  const char* positions = "";
  const char* layer = "model.layers";  // a number stands between it and the names below
  const char* attention_norm = "input_layernorm";
  const char* attention_after = "";  // norms what attention gives
  const char* q = "self_attn.q_proj";
  const char* k = "self_attn.k_proj";
  const char* v = "self_attn.v_proj";
  const char* qkv = "self_attn.qkv_proj";  // where they are one matrix
  const char* q_norm = "self_attn.q_norm";
  const char* k_norm = "self_attn.k_norm";
  const char* o = "self_attn.o_proj";
  const char* ffn_norm = "post_attention_layernorm";
  const char* ffn_after = "";
  // In place of the two before, where a parallel block has two norms.
  const char* parallel_attention_norm = "";
  const char* parallel_ffn_norm = "";
  const char* gate = "mlp.gate_proj";
  const char* up = "mlp.up_proj";
  const char* gate_up = "mlp.gate_up_proj";  // where they are one matrix
  const char* down = "mlp.down_proj";
  // Of a mixture: the router, and all experts as one matrix each.
  const char* router = "mlp.gate";
  const char* experts = "mlp.experts";  // before ".gate_up_proj" and ".down_proj"
  // The same in files that have a tensor for each expert, whose number stands behind the second.
  const char* filed_router = "mlp.gate";
  const char* filed_experts = "mlp.experts";
  const char* expert_gate = "gate_proj";
  const char* expert_up = "up_proj";
  const char* expert_down = "down_proj";
  const char* shared_expert = "mlp.shared_expert";
  const char* shared_gate = "mlp.shared_expert_gate";
  const char* norm = "model.norm";
  const char* head = "lm_head";
  const char* base_prefix = "model.";  // that a file of the bare model leaves out
};

// How config.json calls what all families have.
struct DenseKeys {
  const char* ffn = "intermediate_size";
  const char* kv_heads = "num_key_value_heads";
  const char* activation = "hidden_act";
  const char* norm_eps = "rms_norm_eps";
  const char* initializer_range = "initializer_range";
  const char* full_every = "";   // how often a layer sees all
  const char* local_theta = "";  // of layers with a window
};

// Which layers see a window only, where layer_types does not say it.
enum class Windows : uint8_t {
  none,            // and "sliding_window" without "layer_types" means nothing
  all,             // of them, where "sliding_window" is a number
  after_some,      // Qwen: from "max_window_layers" on, with "use_sliding_window"
  but_every,       // all but each full_every-th
  without_rotary,  // SmolLM3: those that do not turn, with "use_sliding_window"
};

// Biases of q, k and v, and of the matrix after attention.
enum class AttentionBias : uint8_t {
  never,
  qkv,     // always of q, k and v
  by_key,  // "attention_bias" is of all four
};

// What transformers takes where config.json leaves out a key about experts.
struct ExpertDefaults {
  int64_t count = 0;  // 0: the family has no experts
  int64_t per_token = 2;
  const char* ffn = "intermediate_size";  // the key of an expert's width
  int64_t ffn_width = 0;                  // 0: config.json says it
  int64_t shared_ffn = 0;                 // 0: the family has no shared expert
  bool always_normalizes = false;         // whatever "norm_topk_prob" says
  bool in_some_layers = false;            // "decoder_sparse_step" and "mlp_only_layers" say which
  double balance = 0.001;                 // with "output_router_logits"
};

struct DenseFamily {
  ModelType type;
  DenseNames names = {};
  DenseKeys keys = {};
  DenseConfig switches = {};  // with the defaults of transformers for keys that are left out
  // More of those defaults.
  int64_t default_head_dim = 0;    // 0: hidden / heads
  int64_t default_kv_heads = 0;    // 0: heads
  int64_t default_ffn_factor = 0;  // of hidden; 0: config.json says the width
  std::optional<int64_t> default_padding = {};
  bool pads = true;  // pad_token_id means something to the embedding
  Windows windows = Windows::none;
  std::optional<int64_t> default_window = {};
  int64_t full_every = 0;
  AttentionBias attention_bias = AttentionBias::by_key;
  bool ffn_bias_by_key = false;  // "mlp_bias"
  bool partial_rotary = false;   // "partial_rotary_factor" is carried out
  bool two_ropes = false;        // rope_parameters has a section for each type of layer
  ExpertDefaults experts = {};
  // Keys that this family alone has.
  void (*read_more)(const HfConfig& config, DenseConfig& read) = nullptr;
};

std::span<const DenseFamily> dense_families();
// nullptr: there is none of this model_type.
const DenseFamily* find_dense_family(const std::string& model_type);
// Of a config that has been read.
const DenseFamily& dense_family_of(const DenseConfig& read);

}  // namespace shoal::models
