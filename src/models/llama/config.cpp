// See config.h. Defaults are those of transformers, where its configs leave keys out.
#include "models/llama/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "shoal/error.h"

namespace shoal::models {

namespace {

int64_t default_kv_heads(const LlamaConfig& config) {
  if (config.model_type == "mistral") return 8;
  if (config.model_type == "qwen2" || config.model_type == "qwen3") return 32;
  return config.heads;
}

int64_t default_positions(const LlamaConfig& config) {
  if (config.model_type == "mistral") return 131072;
  return config.model_type == "llama" ? 2048 : 32768;
}

Llama3Scaling read_llama3_scaling(const HfConfig& rope, int64_t max_positions) {
  Llama3Scaling scaling;
  scaling.factor = rope.number("factor");
  scaling.low_freq_factor = rope.number("low_freq_factor");
  scaling.high_freq_factor = rope.number("high_freq_factor");
  scaling.original_max_positions = rope.count("original_max_position_embeddings", max_positions);
  if (!(scaling.factor > 0)) rope.refuse("factor", "Give a number above 0.");
  if (!(scaling.low_freq_factor > 0)) rope.refuse("low_freq_factor", "Give a number above 0.");
  if (!(scaling.high_freq_factor > scaling.low_freq_factor)) {
    rope.refuse("high_freq_factor", "Give a number above low_freq_factor.");
  }
  return scaling;
}

// transformers 5 writes "rope_parameters"; before it "rope_theta" stood alone and the rest in "rope_scaling". Where
// both are given, transformers takes "rope_scaling".
RopeConfig read_rope(const HfConfig& config, int64_t max_positions) {
  RopeConfig rope;
  const json::Value* old = config.find("rope_scaling");
  const bool has_old = old != nullptr && !(old->is_object() && old->as_object().empty());
  const HfConfig section = config.section(has_old ? "rope_scaling" : "rope_parameters");
  rope.theta = section.number("rope_theta", config.number("rope_theta", 10000.0));
  if (!(rope.theta > 0)) throw Error(config.origin() + " rope_theta", fmt::format("{} is not above 0.", rope.theta));
  const char* type_key = section.find("rope_type") != nullptr ? "rope_type" : "type";
  const std::string type = section.text(type_key, "default");
  if (type == "llama3") {
    rope.scaling = read_llama3_scaling(section, max_positions);
  } else if (type != "default") {
    section.refuse(type_key, "Use \"default\" or \"llama3\".");
  }
  for (const HfConfig* place : {&config, &section}) {
    if (place->number("partial_rotary_factor", 1.0) != 1.0) place->refuse("partial_rotary_factor", "Use 1.");
  }
  return rope;
}

// The length from which on a sliding window changes what is computed; 0: there is no window.
int64_t read_window(const HfConfig& config, const LlamaConfig& read) {
  bool sliding = read.model_type == "mistral";
  if (read.model_type == "qwen2" || read.model_type == "qwen3") {
    sliding = config.flag("use_sliding_window", false) && config.count("max_window_layers", 28) < read.layers;
  }
  if (const json::Value* types = config.find("layer_types"); types != nullptr && types->is_array()) {
    for (const json::Value& type : types->as_array()) {
      if (type == json::Value("sliding_attention")) {
        sliding = sliding || config.find("sliding_window") != nullptr;
      } else if (type != json::Value("full_attention")) {
        config.refuse("layer_types", "Use \"full_attention\" and \"sliding_attention\".");
      }
    }
  }
  if (!sliding) return 0;
  // Mistral's default is a window of 4096; null means none.
  if (config.root().find("sliding_window") == nullptr) return 4096;
  return config.find("sliding_window") == nullptr ? 0 : config.count("sliding_window");
}

// As torch's Embedding takes it: from the end when negative.
std::optional<int64_t> read_padding_token(const HfConfig& config, int64_t vocab) {
  const json::Value* value = config.find("pad_token_id");
  if (value == nullptr) return std::nullopt;
  if (!value->is_integer() || value->as_integer() >= vocab || value->as_integer() < -vocab) {
    config.refuse("pad_token_id", fmt::format("Use null or a token below vocab_size, {}.", vocab));
  }
  return value->as_integer() < 0 ? value->as_integer() + vocab : value->as_integer();
}

void refuse_unsupported(const HfConfig& config, const LlamaConfig& read) {
  if (config.text("hidden_act", "silu") != "silu") config.refuse("hidden_act", "Use \"silu\".");
  // In Llama and Qwen3 this key puts a bias on o_proj too.
  if (config.flag("attention_bias", false) && read.model_type != "qwen2") {
    config.refuse("attention_bias", "Use false.");
  }
  if (config.flag("mlp_bias", false)) config.refuse("mlp_bias", "Use false.");
  if (config.find("quantization_config") != nullptr) {
    config.refuse("quantization_config", "Use a checkpoint that is not quantized.");
  }
}

}  // namespace

LlamaConfig read_llama_config(const HfConfig& config) {
  LlamaConfig read;
  read.model_type = config.text("model_type", "llama");
  read.vocab = config.count("vocab_size");
  read.hidden = config.count("hidden_size");
  read.ffn = config.count("intermediate_size");
  read.layers = config.layers("num_hidden_layers");
  read.heads = config.count("num_attention_heads");
  read.kv_heads = config.count("num_key_value_heads", default_kv_heads(read));
  read.max_positions = config.count("max_position_embeddings", default_positions(read));
  if (read.heads % read.kv_heads != 0) {
    config.refuse("num_key_value_heads", fmt::format("Use a divisor of num_attention_heads, {}.", read.heads));
  }
  const bool own_dim = config.find("head_dim") != nullptr || read.model_type == "qwen3";
  if (!own_dim && read.hidden % read.heads != 0) {
    config.refuse("num_attention_heads", fmt::format("Use a divisor of hidden_size, {}.", read.hidden));
  }
  read.head_dim = config.count("head_dim", read.model_type == "qwen3" ? 128 : read.hidden / read.heads);
  if (read.head_dim % 2 != 0) {
    config.refuse(config.find("head_dim") != nullptr ? "head_dim" : "num_attention_heads",
                  "Heads turn pairs of dimensions: use an even number of them.");
  }
  read.norm_eps = config.number("rms_norm_eps", 1e-6);
  read.initializer_range = config.number("initializer_range", 0.02);
  read.attention_dropout = config.probability("attention_dropout");
  read.padding_token = read_padding_token(config, read.vocab);
  read.tied = config.flag("tie_word_embeddings", false);
  read.qkv_bias = read.model_type == "qwen2";
  read.qk_norms = read.model_type == "qwen3";
  read.rope = read_rope(config, read.max_positions);
  refuse_unsupported(config, read);
  if (const int64_t window = read_window(config, read); window > 0 && window < read.max_positions) {
    read.max_positions = window;
    read.positions_by = "sliding_window";
  }
  return read;
}

std::string export_llama_config(const HfConfig& config, const LlamaConfig& read, const std::string& architecture) {
  json::Value exported = export_hf_config(config.root(), architecture);
  json::Value rope = json::Object{};
  rope.set("rope_type", read.rope.scaling ? "llama3" : "default");
  rope.set("rope_theta", read.rope.theta);
  if (read.rope.scaling) {
    rope.set("factor", read.rope.scaling->factor);
    rope.set("low_freq_factor", read.rope.scaling->low_freq_factor);
    rope.set("high_freq_factor", read.rope.scaling->high_freq_factor);
    rope.set("original_max_position_embeddings", read.rope.scaling->original_max_positions);
  }
  exported.set("rope_parameters", rope);
  exported.set("rope_theta", read.rope.theta);
  exported.erase("rope_scaling");
  if (read.rope.scaling) {
    rope.erase("rope_theta");
    exported.set("rope_scaling", rope);
  }
  return json::write(exported, 2) + "\n";
}

}  // namespace shoal::models
