// See config.h. Defaults are those of transformers, where its configs leave keys out.
#include "models/dense/config.h"

#include <fmt/format.h>

#include <array>

#include "models/dense/experts_config.h"
#include "models/dense/families.h"
#include "models/dense/rope_config.h"

namespace shoal::models {

namespace {

struct NamedActivation {
  const char* name;
  Activation activation;
};
constexpr std::array<NamedActivation, 7> kActivations = {{{"silu", Activation::silu},
                                                          {"swish", Activation::silu},
                                                          {"gelu", Activation::gelu_exact},
                                                          {"gelu_new", Activation::gelu_tanh},
                                                          {"gelu_fast", Activation::gelu_tanh},
                                                          {"gelu_pytorch_tanh", Activation::gelu_tanh},
                                                          {"relu", Activation::relu}}};

Activation read_activation(const HfConfig& config, const char* key, Activation otherwise) {
  if (config.find(key) == nullptr) return otherwise;
  const std::string name = config.text(key, "");
  for (const NamedActivation& known : kActivations) {
    if (name == known.name) return known.activation;
  }
  config.refuse(key, "Use \"silu\", \"gelu\", \"gelu_new\", \"gelu_pytorch_tanh\" or \"relu\".");
}

// null means as many as heads, where a family has another default.
int64_t read_kv_heads(const HfConfig& config, const DenseFamily& family, int64_t heads) {
  const bool is_null =
      config.root().find(family.keys.kv_heads) != nullptr && config.find(family.keys.kv_heads) == nullptr;
  const int64_t otherwise = is_null || family.default_kv_heads == 0 ? heads : family.default_kv_heads;
  const int64_t kv_heads = config.count(family.keys.kv_heads, otherwise);
  if (heads % kv_heads != 0) {
    config.refuse(
        family.keys.kv_heads,
        fmt::format("{}Use a divisor of num_attention_heads, {}.",
                    config.find(family.keys.kv_heads) == nullptr ? fmt::format("Left out it is {}. ", kv_heads) : "",
                    heads));
  }
  return kv_heads;
}

int64_t read_head_dim(const HfConfig& config, const DenseFamily& family, const DenseConfig& read) {
  const bool own_dim = config.find("head_dim") != nullptr || family.default_head_dim > 0;
  if (!own_dim && read.hidden % read.heads != 0) {
    config.refuse("num_attention_heads", fmt::format("Use a divisor of hidden_size, {}.", read.hidden));
  }
  const int64_t dim =
      config.count("head_dim", family.default_head_dim > 0 ? family.default_head_dim : read.hidden / read.heads);
  if (read.position_offset < 0 && dim % 2 != 0) {
    config.refuse(config.find("head_dim") != nullptr ? "head_dim" : "num_attention_heads",
                  "Heads turn pairs of dimensions: use an even number of them.");
  }
  return dim;
}

// As torch's Embedding takes it: from the end when negative.
std::optional<int64_t> read_padding_token(const HfConfig& config, const DenseFamily& family, int64_t vocab) {
  if (!family.pads) return std::nullopt;
  const json::Value* value = config.find("pad_token_id");
  if (value == nullptr && (config.root().find("pad_token_id") != nullptr || !family.default_padding)) {
    return std::nullopt;
  }
  if (value != nullptr && !value->is_integer()) config.refuse("pad_token_id", "Use null or a token.");
  const int64_t token = value == nullptr ? *family.default_padding : value->as_integer();
  if (token >= vocab || token < -vocab) {
    config.refuse("pad_token_id",
                  fmt::format("{}Use null or a token below vocab_size, {}.",
                              value == nullptr ? fmt::format("Left out it is {}. ", token) : "", vocab));
  }
  return token < 0 ? token + vocab : token;
}

void read_biases(const HfConfig& config, const DenseFamily& family, DenseConfig& read) {
  switch (family.attention_bias) {
    case AttentionBias::qkv: read.qkv_bias = true; break;  // whatever the key says
    case AttentionBias::by_key:
      read.qkv_bias = read.o_bias = config.flag("attention_bias", family.switches.qkv_bias);
      break;
    case AttentionBias::never:
      if (config.flag("attention_bias", false)) config.refuse("attention_bias", "Use false.");
      break;
  }
  if (family.ffn_bias_by_key) {
    read.ffn_bias = config.flag("mlp_bias", false);
  } else if (config.flag("mlp_bias", false)) {
    config.refuse("mlp_bias", "Use false.");
  }
}

// The window that layers of type "sliding_attention" have; 0: none.
int64_t read_window(const HfConfig& config, const DenseFamily& family) {
  const json::Value* value = config.root().find("sliding_window");
  if (value == nullptr) return family.default_window.value_or(0);
  if (family.windows == Windows::none) return config.whole("sliding_window", 0);  // Qwen2-MoE writes 0
  return value->is_null() ? 0 : config.count("sliding_window");
}

// Of layers whose type config.json does not say.
bool slides(const HfConfig& config, const DenseFamily& family, const DenseConfig& read, int64_t layer) {
  const bool uses = config.flag("use_sliding_window", false);
  switch (family.windows) {
    case Windows::none: return false;
    case Windows::all: return true;
    case Windows::after_some: return uses && layer >= config.whole("max_window_layers", 28);
    case Windows::but_every: {
      const char* key = family.keys.full_every;
      const int64_t every = *key != 0 ? config.count(key, family.full_every) : family.full_every;
      return (layer + 1) % every != 0;
    }
    case Windows::without_rotary:
      return uses && read.each_layer[static_cast<size_t>(layer)].rope == DenseLayer::Rope::none;
  }
  return false;
}

// transformers reads layer_types of families whose layers differ only.
void check_layer_types(const HfConfig& config, const DenseFamily& family, const json::Array& types, int64_t window) {
  const bool none = family.windows == Windows::none, all = family.windows == Windows::all;
  for (const json::Value& type : types) {
    const bool sliding = type == json::Value("sliding_attention");
    if (!sliding && type != json::Value("full_attention")) {
      config.refuse("layer_types", "Use \"full_attention\" and \"sliding_attention\".");
    }
    if (window > 0 && ((none && sliding) || (all && !sliding))) {
      config.refuse("layer_types", fmt::format("Leave it out: {} layers of {} have a window.", none ? "no" : "all",
                                               family.type.model_type));
    }
    if (sliding && family.windows == Windows::after_some && !config.flag("use_sliding_window", false)) {
      config.refuse("layer_types", "With \"sliding_attention\" set use_sliding_window to true.");
    }
  }
}

void read_layers(const HfConfig& config, const DenseFamily& family, DenseConfig& read) {
  const json::Value* types = config.find("layer_types");
  if (types != nullptr && !types->is_array()) config.refuse("layer_types", "Give a list.");
  const int64_t window = read_window(config, family);
  if (types != nullptr) check_layer_types(config, family, types->as_array(), window);
  if (types != nullptr && static_cast<int64_t>(types->as_array().size()) != read.layers) {
    config.refuse("layer_types", fmt::format("Give one for each of the {} layers.", read.layers));
  }
  for (int64_t layer = 0; layer < read.layers; ++layer) {
    DenseLayer& of = read.each_layer[static_cast<size_t>(layer)];
    const bool sliding = types != nullptr
                             ? types->as_array()[static_cast<size_t>(layer)] == json::Value("sliding_attention")
                             : slides(config, family, read, layer);
    if (!sliding) continue;
    of.window = window;
    if (family.two_ropes) of.rope = DenseLayer::Rope::local;
  }
}

// transformers takes no integer for these, and JSON's 50.0 is one to whoever read it.
std::string with_points(std::string text) {
  for (const std::string key :
       {"attn_logit_softcapping", "final_logit_softcapping", "router_jitter_noise", "router_aux_loss_coef"}) {
    const std::string begin = fmt::format("\"{}\": ", key);
    const size_t found = text.find(begin);
    if (found == std::string::npos) continue;
    const size_t number = found + begin.size(), end = text.find_first_not_of("0123456789", number);
    if (end != number && end != std::string::npos && std::string("eE.").find(text[end]) == std::string::npos) {
      text.insert(end, ".0");
    }
  }
  return text;
}

}  // namespace

DenseConfig read_dense_config(const HfConfig& config) {
  const DenseFamily* found = find_dense_family(config.text("model_type", "llama"));
  if (found == nullptr) config.refuse("model_type", "It is not in the table of dense families.");
  const DenseFamily& family = *found;
  DenseConfig read = family.switches;
  read.model_type = family.type.model_type;
  read.vocab = config.count("vocab_size");
  read.hidden = config.count("hidden_size");
  const std::optional<int64_t> ffn =
      family.default_ffn_factor > 0 ? std::optional(family.default_ffn_factor * read.hidden) : std::nullopt;
  read.ffn = config.count(family.keys.ffn, ffn);
  read.layers = config.layers("num_hidden_layers");
  read.heads = config.count("num_attention_heads");
  read.kv_heads = read_kv_heads(config, family, read.heads);
  read.max_positions = config.count("max_position_embeddings", family.switches.max_positions);
  read.head_dim = read_head_dim(config, family, read);
  if (*family.keys.norm_eps != 0) read.norm_eps = config.number(family.keys.norm_eps, read.norm_eps);
  read.initializer_range = config.number(family.keys.initializer_range, read.initializer_range);
  read.attention_dropout = config.probability("attention_dropout");
  read.activation = read_activation(config, family.keys.activation, read.activation);
  read.padding_token = read_padding_token(config, family, read.vocab);
  read.tied = config.flag("tie_word_embeddings", read.tied);
  if (config.find("quantization_config") != nullptr) {
    config.refuse("quantization_config", "Use a checkpoint that is not quantized.");
  }
  if (const json::Value* layers = config.find("per_layer_config");
      layers != nullptr && !(layers->is_object() && layers->as_object().empty())) {
    config.refuse("per_layer_config", "Use a model whose layers have one shape.");
  }
  read_biases(config, family, read);
  read.each_layer.resize(static_cast<size_t>(read.layers));
  if (family.read_more != nullptr) family.read_more(config, read);
  read_layers(config, family, read);
  read_experts(config, family, read);
  if (read.position_offset < 0) read_ropes(config, family, read);
  return read;
}

std::string export_dense_config(const HfConfig& config, const DenseConfig& read) {
  const DenseFamily& family = dense_family_of(read);
  json::Value exported = export_hf_config(config.root(), family.type.architecture);
  if (read.position_offset < 0 && !family.two_ropes) export_rope(config, read, exported);
  return with_points(json::write(exported, 2) + "\n");
}

}  // namespace shoal::models
