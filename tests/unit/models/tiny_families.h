// Small models that have every switch of models/dense between them, with sequences of 9 tokens longer than their
// windows.
#pragma once

#include <string>
#include <vector>

namespace shoal::testing {

// The shape of tiny_model.h, of a type, with `more` keys.
inline std::string tiny_dense_json(const std::string& type, const std::string& more) {
  return R"({"model_type": ")" + type +
         R"(", "vocab_size": 29, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2,)"
         R"( "num_attention_heads": 2, "max_position_embeddings": 16)" +
         more + "}";
}

// Mixtures of experts, of which some get no token; with the loss that balances them and without.
inline std::vector<std::string> tiny_mixtures() {
  const std::string one_kv = R"(, "num_key_value_heads": 1, "num_experts_per_tok": 2)";
  const std::string balanced = one_kv + R"(, "output_router_logits": true, "router_aux_loss_coef": 0.1)";
  const std::string narrow = R"(, "num_experts": 6, "moe_intermediate_size": 8)";
  return {
      tiny_dense_json("mixtral", balanced + R"(, "num_local_experts": 24)"),
      tiny_dense_json("qwen2_moe", balanced + narrow + R"(, "shared_expert_intermediate_size": 16)"),
      tiny_dense_json("qwen3_moe", balanced + narrow + R"(, "mlp_only_layers": [0], "norm_topk_prob": true)"),
      tiny_dense_json("olmoe", one_kv + R"(, "num_experts": 6)"),
  };
}

inline std::vector<std::string> tiny_families() {
  const std::string window = R"(, "sliding_window": 4)", one_kv = R"(, "num_key_value_heads": 1)";
  const std::string head = one_kv + R"(, "head_dim": 4)";
  std::vector<std::string> configs = {
      tiny_dense_json("mistral", window + one_kv),
      tiny_dense_json("qwen2", one_kv + R"(, "rope_scaling": {"type": "yarn", "factor": 4.0})"),
      tiny_dense_json("llama", R"(, "attention_bias": true, "mlp_bias": true)"),
      tiny_dense_json("gemma2", head + window + R"(, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0)"),
      tiny_dense_json("gemma3_text", head + window + R"(, "sliding_window_pattern": 2)"),
      tiny_dense_json("phi3",
                      one_kv + window + R"(, "pad_token_id": 3, "partial_rotary_factor": 0.67, "resid_pdrop": 0.1)"),
      tiny_dense_json("olmo2", one_kv),
      tiny_dense_json("smollm3", one_kv + R"(, "pad_token_id": null, "no_rope_layers": [1, 0])"),
      tiny_dense_json("granite", one_kv + R"(, "residual_multiplier": 0.5, "attention_multiplier": 0.3,)"
                                          R"( "embedding_multiplier": 3.0, "logits_scaling": 2.0)"),
      tiny_dense_json("gpt_neox", R"(, "rotary_pct": 0.34, "hidden_dropout": 0.1)"),
      tiny_dense_json("opt", R"(, "ffn_dim": 20, "attention_dropout": 0.1)"),
      tiny_dense_json("falcon", R"(, "new_decoder_architecture": true, "num_kv_heads": 1)"),
      tiny_dense_json("falcon", R"(, "bias": true)"),
  };
  for (const std::string& mixture : tiny_mixtures()) configs.push_back(mixture);
  return configs;
}

}  // namespace shoal::testing
