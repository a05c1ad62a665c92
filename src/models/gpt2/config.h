// GPT-2's config.json.
#pragma once

#include <cstdint>
#include <string>

#include "models/hf_config.h"

namespace shoal::models {

struct Gpt2Config {
  int64_t vocab = 0, hidden = 0, ffn = 0, layers = 0, heads = 0;
  int64_t max_positions = 0;
  std::string positions_by = "n_positions";  // the key that says so
  double norm_eps = 1e-5;
  double initializer_range = 0.02;
  double embedding_dropout = 0, attention_dropout = 0, residual_dropout = 0;
  bool exact_gelu = false;  // "gelu"; otherwise the tanh form
  bool tied = true;         // the head is the embedding
};

// Throws an Error that names key and value where the model would not be computed as the config means it.
Gpt2Config read_gpt2_config(const HfConfig& config);

}  // namespace shoal::models
