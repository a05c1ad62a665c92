// See config.h. Defaults are those of transformers, where its configs leave keys out.
#include "models/gpt2/config.h"

#include <fmt/format.h>

namespace shoal::models {

namespace {

double dropout_of(const HfConfig& config, const char* key) {
  return config.find(key) == nullptr ? 0.1 : config.probability(key);
}

void refuse_unsupported(const HfConfig& config) {
  if (!config.flag("scale_attn_weights", true)) config.refuse("scale_attn_weights", "Use true.");
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
    if (config.flag(key, false)) config.refuse(key, "Use false.");
  }
  if (config.find("quantization_config") != nullptr) {
    config.refuse("quantization_config", "Use a checkpoint that is not quantized.");
  }
}

}  // namespace

Gpt2Config read_gpt2_config(const HfConfig& config) {
  Gpt2Config read;
  read.vocab = config.count("vocab_size", 50257);
  read.hidden = config.count("n_embd", 768);
  read.layers = config.layers("n_layer", 12);
  read.heads = config.count("n_head", 12);
  read.ffn = config.count("n_inner", 4 * read.hidden);
  read.max_positions = config.count("n_positions", 1024);
  if (read.hidden % read.heads != 0) config.refuse("n_head", fmt::format("Use a divisor of n_embd, {}.", read.hidden));
  read.norm_eps = config.number("layer_norm_epsilon", 1e-5);
  read.initializer_range = config.number("initializer_range", 0.02);
  read.embedding_dropout = dropout_of(config, "embd_pdrop");
  read.attention_dropout = dropout_of(config, "attn_pdrop");
  read.residual_dropout = dropout_of(config, "resid_pdrop");
  const std::string activation = config.text("activation_function", "gelu_new");
  read.exact_gelu = activation == "gelu";
  if (activation != "gelu" && activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    config.refuse("activation_function", "Use \"gelu_new\", \"gelu_pytorch_tanh\" or \"gelu\".");
  }
  read.tied = config.flag("tie_word_embeddings", true);
  refuse_unsupported(config);
  return read;
}

}  // namespace shoal::models
