// See families.h. The rows stand in the order in which an error lists them.
#include "models/dense/families.h"

#include <cmath>

#include "base/check.h"

namespace shoal::models {

namespace {

// Gemma's scale of the embedding, and of scores where a key says how wide a head counts.
void read_gemma(const HfConfig& config, DenseConfig& read) {
  read.embedding_scale = std::sqrt(static_cast<double>(read.hidden));
  if (config.flag("use_bidirectional_attention", false)) {
    config.refuse("use_bidirectional_attention", "Use false: a token attends to those before it.");
  }
}

void read_gemma1(const HfConfig& config, DenseConfig& read) {
  read_gemma(config, read);
  // transformers 4 computes by hidden_activation, 5 by hidden_act.
  const std::string activation = config.text("hidden_act", "gelu_pytorch_tanh");
  if (config.text("hidden_activation", activation) != activation) {
    config.refuse("hidden_activation",
                  "It differs from hidden_act: give both the one that the model was trained with.");
  }
  if (config.find("hidden_activation") == nullptr && read.activation != Activation::gelu_tanh) {
    config.refuse("hidden_act",
                  "transformers 4 computes gelu_pytorch_tanh here, 5 what it says: write the one that the model was "
                  "trained with, and the same in hidden_activation.");
  }
}

double softcap_of(const HfConfig& config, const char* key, double otherwise) {
  if (config.root().find(key) == nullptr) return otherwise;
  const double cap = config.number(key, 0.0);  // null: none
  if (cap < 0 || (config.find(key) != nullptr && cap == 0)) config.refuse(key, "Use null or a number above 0.");
  return cap;
}

void read_gemma2(const HfConfig& config, DenseConfig& read) {
  read_gemma(config, read);
  const double scalar = config.number("query_pre_attn_scalar", 256.0);
  if (!(scalar > 0)) config.refuse("query_pre_attn_scalar", "Use a number above 0.");
  read.attention_scale = 1 / std::sqrt(scalar);
  read.attention_softcap = softcap_of(config, "attn_logit_softcapping", read.attention_softcap);
  read.logits_softcap = softcap_of(config, "final_logit_softcapping", read.logits_softcap);
}

void read_gemma3(const HfConfig& config, DenseConfig& read) {
  read_gemma2(config, read);
  // transformers caps the logits by this key, and by this one not the scores.
  if (read.attention_softcap != 0) config.refuse("attn_logit_softcapping", "Use null.");
}

void read_phi3(const HfConfig& config, DenseConfig& read) {
  read.residual_dropout = config.probability("resid_pdrop");
  if (config.probability("embd_pdrop") > 0) config.refuse("embd_pdrop", "Use 0, as transformers computes it.");
}

double scale_of(const HfConfig& config, const char* key) {
  const double scale = config.number(key, 1.0);
  if (!std::isfinite(scale) || scale == 0) config.refuse(key, "Use a number other than 0.");
  return scale;
}

void read_granite(const HfConfig& config, DenseConfig& read) {
  read.embedding_scale = scale_of(config, "embedding_multiplier");
  read.residual_scale = scale_of(config, "residual_multiplier");
  read.attention_scale = scale_of(config, "attention_multiplier");
  read.logits_divisor = scale_of(config, "logits_scaling");
}

// A layer whose entry is 0 does not turn.
void read_smollm3(const HfConfig& config, DenseConfig& read) {
  const json::Value* list = config.find("no_rope_layers");
  const int64_t every = config.count("no_rope_layer_interval", 4);
  if (list != nullptr && (!list->is_array() || static_cast<int64_t>(list->as_array().size()) != read.layers)) {
    config.refuse("no_rope_layers", "Give 1 or 0 for each layer.");
  }
  for (int64_t layer = 0; layer < read.layers; ++layer) {
    bool turns = (layer + 1) % every != 0;
    if (list != nullptr) {
      const json::Value& entry = list->as_array()[static_cast<size_t>(layer)];
      if (!entry.is_integer() && !entry.is_boolean()) config.refuse("no_rope_layers", "Give 1 or 0 for each layer.");
      turns = entry.is_integer() ? entry.as_integer() != 0 : entry.as_boolean();
    }
    if (!turns) read.each_layer[static_cast<size_t>(layer)].rope = DenseLayer::Rope::none;
  }
}

// Families that know no such keys: transformers passes over them.
void refuse_own_heads(const HfConfig& config, const DenseConfig& read) {
  if (read.head_dim != read.hidden / read.heads) config.refuse("head_dim", "Leave it out: it is hidden_size / heads.");
}

void read_gpt_neox(const HfConfig& config, DenseConfig& read) {
  read.parallel = config.flag("use_parallel_residual", true);
  read.residual_dropout = read.embedding_dropout = config.probability("hidden_dropout");
  refuse_own_heads(config, read);
  if (read.kv_heads != read.heads) config.refuse("num_key_value_heads", "Leave it out: they are as many as heads.");
}

void read_opt(const HfConfig& config, DenseConfig& read) {
  read.residual_dropout = config.find("dropout") == nullptr ? 0.1 : config.probability("dropout");
  if (config.probability("layerdrop") > 0) config.refuse("layerdrop", "Use 0.");
  if (!config.flag("do_layer_norm_before", true)) config.refuse("do_layer_norm_before", "Use true.");
  if (config.flag("_remove_final_layer_norm", false)) config.refuse("_remove_final_layer_norm", "Use false.");
  if (!config.flag("layer_norm_elementwise_affine", true)) config.refuse("layer_norm_elementwise_affine", "Use true.");
  if (config.count("word_embed_proj_dim", read.hidden) != read.hidden) {
    config.refuse("word_embed_proj_dim", "Use hidden_size.");
  }
  refuse_own_heads(config, read);
  if (read.kv_heads != read.heads) config.refuse("num_key_value_heads", "Leave it out: they are as many as heads.");
  const bool biased = config.flag("enable_bias", true);
  read.qkv_bias = read.o_bias = read.ffn_bias = biased;
}

void read_falcon(const HfConfig& config, DenseConfig& read) {
  if (config.flag("alibi", false)) config.refuse("alibi", "Use false: positions are rotary here.");
  const bool grouped = config.flag("new_decoder_architecture", false);
  if (!grouped) read.kv_heads = config.flag("multi_query", true) ? 1 : read.heads;
  read.parallel = config.flag("parallel_attn", true);
  if (grouped && !read.parallel) config.refuse("parallel_attn", "With new_decoder_architecture use true.");
  const int64_t norms = config.count("num_ln_in_parallel_attn", grouped ? 2 : 1);
  if (norms > 2 || (!grouped && norms != 1)) config.refuse("num_ln_in_parallel_attn", "Leave it out.");
  read.shared_norm = read.parallel && norms == 1;
  read.qkv_bias = read.o_bias = read.ffn_bias = config.flag("bias", false);
  refuse_own_heads(config, read);
  if (config.probability("hidden_dropout") > 0) config.refuse("hidden_dropout", "Use 0.");
  if (read.attention_dropout > 0) config.refuse("attention_dropout", "Use 0, as transformers computes it.");
}

void read_starcoder2(const HfConfig& config, DenseConfig& read) {
  read.residual_dropout = config.probability("residual_dropout");
  read.embedding_dropout = config.probability("embedding_dropout");
  read.qkv_bias = read.o_bias = read.ffn_bias = config.flag("use_bias", true);
}

void refuse_windows(const HfConfig& config) {
  if (config.flag("use_sliding_window", false)) config.refuse("use_sliding_window", "Use false.");
}

void read_qwen2_moe(const HfConfig& config, DenseConfig& read) {
  refuse_windows(config);
  read.qkv_bias = config.flag("qkv_bias", true);
}

void read_qwen3_moe(const HfConfig& config, DenseConfig&) { refuse_windows(config); }

void read_olmoe(const HfConfig& config, DenseConfig& read) {
  if (config.find("clip_qkv") != nullptr) config.refuse("clip_qkv", "Use null.");
  refuse_own_heads(config, read);
}

DenseConfig gemma_switches() {
  DenseConfig switches;
  switches.norm = NormKind::rms_one;
  switches.activation = Activation::gelu_tanh;
  switches.tied = switches.rounds_embedding_scale = true;
  switches.max_positions = 8192;
  return switches;
}

DenseConfig with_positions(int64_t positions, double eps = 1e-6) {
  DenseConfig switches;
  switches.max_positions = positions;
  switches.norm_eps = eps;
  return switches;
}

DenseFamily olmo(const char* type, const char* architecture, const char* base) {
  DenseFamily row = {.type = {type, architecture, base}, .default_padding = 1};
  row.switches = with_positions(2048, 1e-5);
  row.switches.norm_before = false;
  row.switches.norm_after = true;
  row.switches.qk_norm = QkNorm::whole;
  row.switches.rope.turns_in_fp32 = row.switches.local_rope.turns_in_fp32 = true;
  row.names.attention_norm = row.names.ffn_norm = "";
  row.names.attention_after = "post_attention_layernorm";
  row.names.ffn_after = "post_feedforward_layernorm";
  return row;
}

void add_llamas(std::vector<DenseFamily>& rows) {
  rows.push_back({.type = {"llama", "LlamaForCausalLM", "LlamaModel"}, .ffn_bias_by_key = true});
  rows.back().switches = with_positions(2048);
  rows.push_back({.type = {"mistral", "MistralForCausalLM", "MistralModel"},
                  .default_kv_heads = 8,
                  .windows = Windows::all,
                  .default_window = 4096,
                  .attention_bias = AttentionBias::never});
  rows.back().switches = with_positions(131072);
  rows.push_back({.type = {"qwen2", "Qwen2ForCausalLM", "Qwen2Model"},
                  .default_kv_heads = 32,
                  .windows = Windows::after_some,
                  .default_window = 4096,
                  .attention_bias = AttentionBias::qkv});
  rows.back().switches = with_positions(32768);
  rows.push_back({.type = {"qwen3", "Qwen3ForCausalLM", "Qwen3Model"},
                  .default_head_dim = 128,
                  .default_kv_heads = 32,
                  .windows = Windows::after_some,
                  .default_window = 4096});
  rows.back().switches = with_positions(32768);
  rows.back().switches.qk_norm = QkNorm::heads;
}

void add_gemmas(std::vector<DenseFamily>& rows) {
  rows.push_back({.type = {"gemma", "GemmaForCausalLM", "GemmaModel"},
                  .switches = gemma_switches(),
                  .default_head_dim = 256,
                  .default_kv_heads = 16,
                  .default_padding = 0,
                  .read_more = read_gemma1});
  DenseFamily row = {.type = {"gemma2", "Gemma2ForCausalLM", "Gemma2Model"},
                     .switches = gemma_switches(),
                     .default_head_dim = 256,
                     .default_kv_heads = 4,
                     .default_padding = 0,
                     .windows = Windows::but_every,
                     .default_window = 4096,
                     .full_every = 2,
                     .read_more = read_gemma2};
  row.keys.activation = "hidden_activation";
  row.switches.norm_after = true;
  row.switches.attention_softcap = 50;
  row.switches.logits_softcap = 30;
  row.names.attention_after = "post_attention_layernorm";
  row.names.ffn_norm = "pre_feedforward_layernorm";
  row.names.ffn_after = "post_feedforward_layernorm";
  rows.push_back(row);
  row.type = {"gemma3_text", "Gemma3ForCausalLM", "Gemma3TextModel"};
  row.switches.attention_softcap = row.switches.logits_softcap = 0;
  row.switches.max_positions = 131072;
  row.switches.qk_norm = QkNorm::heads;
  row.switches.rope.theta = 1e6;
  row.full_every = 6;
  row.keys.full_every = "sliding_window_pattern";
  row.keys.local_theta = "rope_local_base_freq";
  row.two_ropes = true;
  row.read_more = read_gemma3;
  rows.push_back(row);
}

void add_others(std::vector<DenseFamily>& rows) {
  rows.push_back({.type = {"phi3", "Phi3ForCausalLM", "Phi3Model"},
                  .switches = with_positions(4096, 1e-5),
                  .default_padding = 32000,
                  .windows = Windows::all,
                  .attention_bias = AttentionBias::never,
                  .partial_rotary = true,
                  .read_more = read_phi3});
  rows.back().switches.qkv_layout = QkvLayout::side_by_side;
  rows.back().switches.gate_beside_up = true;
  rows.push_back(olmo("olmo2", "Olmo2ForCausalLM", "Olmo2Model"));
  rows.push_back(olmo("olmo3", "Olmo3ForCausalLM", "Olmo3Model"));
  rows.back().windows = Windows::but_every;
  rows.back().default_window = 4096;
  rows.back().full_every = 4;
  rows.back().two_ropes = true;
  rows.back().switches.rope.theta = rows.back().switches.local_rope.theta = 500000;
  rows.push_back({.type = {"smollm3", "SmolLM3ForCausalLM", "SmolLM3Model"},
                  .switches = with_positions(32768),
                  .default_kv_heads = 4,
                  .default_padding = 128004,
                  .windows = Windows::without_rotary,
                  .ffn_bias_by_key = true,
                  .read_more = read_smollm3});
  rows.back().switches.tied = true;
  rows.back().switches.rope.theta = 2e6;
  rows.push_back({.type = {"granite", "GraniteForCausalLM", "GraniteModel"},
                  .switches = with_positions(2048),
                  .ffn_bias_by_key = true,
                  .read_more = read_granite});
}

// Layer norms, two matrices in the feed-forward part.
DenseConfig layer_norm_switches(Activation activation) {
  DenseConfig switches = with_positions(2048, 1e-5);
  switches.norm = NormKind::layer;
  switches.gated = false;
  switches.activation = activation;
  return switches;
}

void add_layer_normed(std::vector<DenseFamily>& rows) {
  DenseFamily neox = {.type = {"gpt_neox", "GPTNeoXForCausalLM", "GPTNeoXModel"},
                      .switches = layer_norm_switches(Activation::gelu_exact),
                      .pads = false,
                      .partial_rotary = true,
                      .read_more = read_gpt_neox};
  neox.keys.norm_eps = "layer_norm_eps";
  neox.switches.qkv_layout = QkvLayout::by_group;
  neox.switches.qkv_bias = neox.switches.o_bias = neox.switches.ffn_bias = true;
  neox.switches.rope.partial = 0.25;
  neox.names = {.embedding = "gpt_neox.embed_in",
                .layer = "gpt_neox.layers",
                .qkv = "attention.query_key_value",
                .o = "attention.dense",
                .up = "mlp.dense_h_to_4h",
                .down = "mlp.dense_4h_to_h",
                .norm = "gpt_neox.final_layer_norm",
                .head = "embed_out",
                .base_prefix = "gpt_neox."};
  rows.push_back(neox);
  DenseFamily opt = {.type = {"opt", "OPTForCausalLM", "OPTModel"},
                     .switches = layer_norm_switches(Activation::relu),
                     .default_padding = 1,
                     .attention_bias = AttentionBias::never,
                     .read_more = read_opt};
  opt.keys = {.ffn = "ffn_dim", .activation = "activation_function", .norm_eps = "", .initializer_range = "init_std"};
  opt.switches.position_offset = 2;
  opt.switches.tied = true;
  opt.names = {.embedding = "model.decoder.embed_tokens",
               .positions = "model.decoder.embed_positions",
               .layer = "model.decoder.layers",
               .attention_norm = "self_attn_layer_norm",
               .o = "self_attn.out_proj",
               .ffn_norm = "final_layer_norm",
               .up = "fc1",
               .down = "fc2",
               .norm = "model.decoder.final_layer_norm"};
  rows.push_back(opt);
  DenseFamily falcon = {.type = {"falcon", "FalconForCausalLM", "FalconModel"},
                        .switches = layer_norm_switches(Activation::gelu_exact),
                        .default_ffn_factor = 4,
                        .pads = false,
                        .attention_bias = AttentionBias::never,
                        .read_more = read_falcon};
  falcon.keys = {.ffn = "ffn_hidden_size",
                 .kv_heads = "num_kv_heads",
                 .activation = "activation",
                 .norm_eps = "layer_norm_epsilon"};
  falcon.switches.qkv_layout = QkvLayout::by_group;
  falcon.switches.tied = true;
  falcon.names = {.embedding = "transformer.word_embeddings",
                  .layer = "transformer.h",
                  .qkv = "self_attention.query_key_value",
                  .o = "self_attention.dense",
                  .parallel_attention_norm = "ln_attn",
                  .parallel_ffn_norm = "ln_mlp",
                  .up = "mlp.dense_h_to_4h",
                  .down = "mlp.dense_4h_to_h",
                  .norm = "transformer.ln_f",
                  .base_prefix = "transformer."};
  rows.push_back(falcon);
}

void add_starcoder2(std::vector<DenseFamily>& rows) {
  DenseFamily row = {.type = {"starcoder2", "Starcoder2ForCausalLM", "Starcoder2Model"},
                     .switches = layer_norm_switches(ops::Activation::gelu_tanh),
                     .default_kv_heads = 2,
                     .windows = Windows::all,
                     .attention_bias = AttentionBias::never,
                     .read_more = read_starcoder2};
  row.keys.norm_eps = "norm_epsilon";
  row.switches.initializer_range = 0.018042;
  row.switches.max_positions = 4096;
  row.switches.tied = true;
  row.names.up = "mlp.c_fc";
  row.names.down = "mlp.c_proj";
  rows.push_back(row);
}

void add_mixtures(std::vector<DenseFamily>& rows) {
  DenseFamily mixtral = {.type = {"mixtral", "MixtralForCausalLM", "MixtralModel"},
                         .switches = with_positions(131072, 1e-5),
                         .default_kv_heads = 8,
                         .windows = Windows::all,
                         .attention_bias = AttentionBias::never,
                         .experts = {.count = 8, .always_normalizes = true}};
  mixtral.switches.rope.theta = 1e6;
  mixtral.names.filed_router = "block_sparse_moe.gate";
  mixtral.names.filed_experts = "block_sparse_moe.experts";
  mixtral.names.expert_gate = "w1";
  mixtral.names.expert_up = "w3";
  mixtral.names.expert_down = "w2";
  rows.push_back(mixtral);
  rows.push_back({.type = {"qwen2_moe", "Qwen2MoeForCausalLM", "Qwen2MoeModel"},
                  .switches = with_positions(32768),
                  .default_kv_heads = 16,
                  .attention_bias = AttentionBias::never,
                  .experts = {.count = 60,
                              .per_token = 4,
                              .ffn = "moe_intermediate_size",
                              .ffn_width = 1408,
                              .shared_ffn = 5632,
                              .in_some_layers = true},
                  .read_more = read_qwen2_moe});
  rows.push_back(
      {.type = {"qwen3_moe", "Qwen3MoeForCausalLM", "Qwen3MoeModel"},
       .switches = with_positions(32768),
       .default_kv_heads = 4,
       .experts =
           {.count = 128, .per_token = 8, .ffn = "moe_intermediate_size", .ffn_width = 768, .in_some_layers = true},
       .read_more = read_qwen3_moe});
  rows.back().switches.qk_norm = QkNorm::heads;
  rows.push_back({.type = {"olmoe", "OlmoeForCausalLM", "OlmoeModel"},
                  .switches = with_positions(4096, 1e-5),
                  .default_padding = 1,
                  .experts = {.count = 64, .per_token = 8, .balance = 0.01},
                  .read_more = read_olmoe});
  rows.back().switches.qk_norm = QkNorm::whole;
}

std::vector<DenseFamily> make_families() {
  std::vector<DenseFamily> rows;
  add_llamas(rows);
  add_gemmas(rows);
  add_others(rows);
  add_layer_normed(rows);
  add_starcoder2(rows);
  add_mixtures(rows);
  return rows;
}

}  // namespace

std::span<const DenseFamily> dense_families() {
  static const std::vector<DenseFamily> kFamilies = make_families();
  return kFamilies;
}

const DenseFamily* find_dense_family(const std::string& model_type) {
  for (const DenseFamily& family : dense_families()) {
    if (family.type.model_type == model_type) return &family;
  }
  return nullptr;
}

const DenseFamily& dense_family_of(const DenseConfig& read) {
  const DenseFamily* family = find_dense_family(read.model_type);
  SHOAL_CHECK(family != nullptr, "{}", read.model_type);
  return *family;
}

}  // namespace shoal::models
