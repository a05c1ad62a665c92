// See builtin.h.
#include "models/builtin.h"

namespace shoal::models {

namespace {

struct LlamaShape {
  int64_t hidden, layers, heads, kv_heads, ffn;
  int64_t vocab = 32000;
  int64_t max_positions = 4096;
  double theta = 10000.0;
  bool tied = false;
};

json::Value llama_config(const LlamaShape& shape) {
  json::Value config = json::Object{};
  config.set("model_type", "llama");
  config.set("vocab_size", shape.vocab);
  config.set("hidden_size", shape.hidden);
  config.set("intermediate_size", shape.ffn);
  config.set("num_hidden_layers", shape.layers);
  config.set("num_attention_heads", shape.heads);
  config.set("num_key_value_heads", shape.kv_heads);
  config.set("head_dim", shape.hidden / shape.heads);
  config.set("hidden_act", "silu");
  config.set("max_position_embeddings", shape.max_positions);
  config.set("initializer_range", 0.02);
  config.set("rms_norm_eps", 1e-5);
  config.set("rope_theta", shape.theta);
  config.set("attention_bias", false);
  config.set("attention_dropout", 0.0);
  config.set("mlp_bias", false);
  config.set("tie_word_embeddings", shape.tied);
  return config;
}

json::Value gpt2_config() {
  json::Value config = json::Object{};
  config.set("model_type", "gpt2");
  config.set("vocab_size", 50257);
  config.set("n_positions", 1024);
  config.set("n_embd", 768);
  config.set("n_layer", 12);
  config.set("n_head", 12);
  config.set("activation_function", "gelu_new");
  config.set("resid_pdrop", 0.1);
  config.set("embd_pdrop", 0.1);
  config.set("attn_pdrop", 0.1);
  config.set("layer_norm_epsilon", 1e-5);
  config.set("initializer_range", 0.02);
  config.set("bos_token_id", 50256);
  config.set("eos_token_id", 50256);
  config.set("tie_word_embeddings", true);
  return config;
}

std::vector<Builtin> make_builtins() {
  const LlamaShape tiny = {
      .hidden = 192, .layers = 6, .heads = 6, .kv_heads = 6, .ffn = 512, .vocab = 256, .max_positions = 1024};
  const LlamaShape small = {
      .hidden = 512, .layers = 8, .heads = 8, .kv_heads = 8, .ffn = 1376, .vocab = 8192, .max_positions = 2048};
  // There is one Llama of 8 billion parameters, Llama 3, and it has this vocabulary. llama-1b and llama-3b are shapes
  // for measurements, with that of Llama 2 as 7b and 13b have it.
  const LlamaShape llama3 = {.hidden = 4096,
                             .layers = 32,
                             .heads = 32,
                             .kv_heads = 8,
                             .ffn = 14336,
                             .vocab = 128256,
                             .max_positions = 8192,
                             .theta = 500000.0};
  const LlamaShape llama31_405b = {.hidden = 16384,
                                   .layers = 126,
                                   .heads = 128,
                                   .kv_heads = 8,
                                   .ffn = 53248,
                                   .vocab = 128256,
                                   .max_positions = 131072,
                                   .theta = 500000.0};
  return {
      {"llama-tiny", llama_config(tiny), true},
      {"llama-33m", llama_config(small)},
      {"gpt2", gpt2_config()},
      {"llama-1b", llama_config({.hidden = 2048, .layers = 16, .heads = 32, .kv_heads = 8, .ffn = 8192})},
      {"llama-3b", llama_config({.hidden = 3072, .layers = 28, .heads = 24, .kv_heads = 8, .ffn = 8192})},
      {"llama-7b", llama_config({.hidden = 4096, .layers = 32, .heads = 32, .kv_heads = 32, .ffn = 11008})},
      {"llama-8b", llama_config(llama3)},
      {"llama-13b", llama_config({.hidden = 5120, .layers = 40, .heads = 40, .kv_heads = 40, .ffn = 13824})},
      {"llama-2-70b", llama_config({.hidden = 8192, .layers = 80, .heads = 64, .kv_heads = 8, .ffn = 28672})},
      {"llama-405b", llama_config(llama31_405b)},
  };
}

}  // namespace

const std::vector<Builtin>& builtins() {
  static const std::vector<Builtin> kBuiltins = make_builtins();
  return kBuiltins;
}

const Builtin* find_builtin(const std::string& name) {
  for (const Builtin& builtin : builtins()) {
    if (builtin.name == name) return &builtin;
  }
  return nullptr;
}

}  // namespace shoal::models
