// The Llama family's config.json: Llama 2, 3 and 3.x, Mistral, Qwen2, Qwen3. They are one model with a few switches.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/hf_config.h"
#include "models/llama/rope.h"

namespace shoal::models {

struct LlamaConfig {
  std::string model_type;
  int64_t vocab = 0, hidden = 0, ffn = 0, layers = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t max_positions = 0;  // or the length of the sliding window, if that is shorter: up to there it changes nothing
  std::string positions_by = "max_position_embeddings";  // the key that decided
  double norm_eps = 1e-6;
  double initializer_range = 0.02;
  double attention_dropout = 0;
  // Its row of the embedding begins at 0, and looking it up gives no gradient; a tied head does.
  std::optional<int64_t> padding_token;
  bool tied = false;      // the head is the embedding
  bool qkv_bias = false;  // Qwen2
  bool qk_norms = false;  // Qwen3: q and k are normed head by head
  RopeConfig rope;
};

// Throws an Error that names key and value where the model would not be computed as the config means it.
LlamaConfig read_llama_config(const HfConfig& config);

// The config.json to export: what was read, with the rotary keys as transformers 4 and 5 both find them.
std::string export_llama_config(const HfConfig& config, const LlamaConfig& read, const std::string& architecture);

}  // namespace shoal::models
