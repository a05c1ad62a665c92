#include "models/dense/experts_config.h"

#include <gmock/gmock.h>

#include "training/outcome.h"

namespace shoal::models {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;

namespace {

DenseConfig read_mixture(const std::string& type, const std::string& more = "") {
  const std::string text = R"({"model_type": ")" + type +
                           R"(", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 128,)"
                           R"( "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2)" +
                           more + "}";
  return read_dense_config(HfConfig(json::parse(text, "config.json"), "config.json"));
}

std::string problem_with_experts(const std::string& type, const std::string& more) {
  return message_of([&] { read_mixture(type, more); });
}

std::vector<bool> layers_with_experts(const DenseConfig& config) {
  std::vector<bool> layers;
  for (const DenseLayer& layer : config.each_layer) layers.push_back(layer.experts);
  return layers;
}

}  // namespace

TEST(ExpertsConfig, HasTheDefaultsOfTransformers) {
  const DenseExperts mixtral = read_mixture("mixtral").experts;
  EXPECT_EQ(mixtral.count, 8);
  EXPECT_EQ(mixtral.per_token, 2);
  EXPECT_EQ(mixtral.ffn, 128);
  EXPECT_TRUE(mixtral.normalizes);
  EXPECT_EQ(mixtral.shared_ffn, 0);
  EXPECT_EQ(mixtral.balance, 0);
  const DenseExperts qwen2 = read_mixture("qwen2_moe").experts;
  EXPECT_EQ(qwen2.count, 60);
  EXPECT_EQ(qwen2.per_token, 4);
  EXPECT_EQ(qwen2.ffn, 1408);
  EXPECT_EQ(qwen2.shared_ffn, 5632);
  EXPECT_FALSE(qwen2.normalizes);
  const DenseExperts qwen3 = read_mixture("qwen3_moe").experts;
  EXPECT_EQ(qwen3.count, 128);
  EXPECT_EQ(qwen3.per_token, 8);
  EXPECT_EQ(qwen3.ffn, 768);
  const DenseExperts olmoe = read_mixture("olmoe").experts;
  EXPECT_EQ(olmoe.count, 64);
  EXPECT_EQ(olmoe.per_token, 8);
  EXPECT_EQ(olmoe.ffn, 128);
  EXPECT_EQ(read_mixture("llama").experts.count, 0);
}

TEST(ExpertsConfig, TheAuxiliaryLossIsThatOfTransformers) {
  EXPECT_EQ(read_mixture("mixtral", R"(, "router_aux_loss_coef": 0.5)").experts.balance, 0);
  EXPECT_EQ(read_mixture("mixtral", R"(, "output_router_logits": true)").experts.balance, 0.001);
  EXPECT_EQ(read_mixture("olmoe", R"(, "output_router_logits": true)").experts.balance, 0.01);
  EXPECT_EQ(read_mixture("olmoe", R"(, "output_router_logits": true, "router_aux_loss_coef": 0.5)").experts.balance,
            0.5);
  EXPECT_THAT(problem_with_experts("olmoe", R"(, "router_aux_loss_coef": -1)"), HasSubstr("router_aux_loss_coef] -1"));
}

TEST(ExpertsConfig, SomeLayersMayBeDense) {
  using Layers = std::vector<bool>;
  EXPECT_EQ(layers_with_experts(read_mixture("qwen3_moe")), (Layers{true, true, true, true}));
  EXPECT_EQ(layers_with_experts(read_mixture("qwen3_moe", R"(, "decoder_sparse_step": 2)")),
            (Layers{false, true, false, true}));
  EXPECT_EQ(layers_with_experts(read_mixture("qwen2_moe", R"(, "decoder_sparse_step": 2, "mlp_only_layers": [3, 9])")),
            (Layers{false, true, false, false}));
  // Families that have no such keys pass over them, as transformers does.
  EXPECT_EQ(layers_with_experts(read_mixture("mixtral", R"(, "decoder_sparse_step": 2)")),
            (Layers{true, true, true, true}));
  EXPECT_THAT(problem_with_experts("qwen3_moe", R"(, "mlp_only_layers": 3)"), HasSubstr("mlp_only_layers] 3"));
  EXPECT_THAT(problem_with_experts("qwen3_moe", R"(, "mlp_only_layers": ["3"])"), HasSubstr("mlp_only_layers]"));
}

TEST(ExpertsConfig, TheCountHasTwoNames) {
  EXPECT_EQ(read_mixture("qwen3_moe", R"(, "num_local_experts": 16)").experts.count, 16);
  EXPECT_EQ(read_mixture("mixtral", R"(, "num_experts": 16)").experts.count, 16);
  EXPECT_EQ(read_mixture("mixtral", R"(, "num_experts": 16, "num_local_experts": 16)").experts.count, 16);
  EXPECT_THAT(problem_with_experts("mixtral", R"(, "num_experts": 16, "num_local_experts": 8)"),
              AllOf(HasSubstr("num_experts] 16"), HasSubstr("num_local_experts is 8")));
}

TEST(ExpertsConfig, WhatIsNotCarriedOutIsRefusedByName) {
  EXPECT_THAT(problem_with_experts("mixtral", R"(, "num_local_experts": 4, "num_experts_per_tok": 5)"),
              AllOf(HasSubstr("num_experts_per_tok] 5"), HasSubstr("Use 4 at most")));
  EXPECT_THAT(problem_with_experts("olmoe", R"(, "num_experts": 4)"),
              AllOf(HasSubstr("num_experts_per_tok]"), HasSubstr("Left out it is 8"), HasSubstr("Use 4 at most")));
  EXPECT_THAT(problem_with_experts("mixtral", R"(, "num_local_experts": 0)"), HasSubstr("num_local_experts] 0"));
  EXPECT_THAT(problem_with_experts("mixtral", R"(, "num_local_experts": 100000)"), HasSubstr("Use 65536 at most"));
  EXPECT_THAT(problem_with_experts("mixtral", R"(, "router_jitter_noise": 0.1)"),
              HasSubstr("router_jitter_noise] 0.1"));
  EXPECT_THAT(problem_with_experts("mixtral", R"(, "norm_topk_prob": false)"), HasSubstr("norm_topk_prob] false"));
  EXPECT_THAT(problem_with_experts("mixtral", R"(, "hidden_act": "gelu")"), HasSubstr("hidden_act] \"gelu\""));
  EXPECT_THAT(problem_with_experts("olmoe", R"(, "clip_qkv": 8.0)"), HasSubstr("clip_qkv] 8"));
  EXPECT_THAT(problem_with_experts("qwen3_moe", R"(, "use_sliding_window": true)"),
              HasSubstr("use_sliding_window] true"));
  EXPECT_THAT(problem_with_experts("qwen2_moe", R"(, "use_sliding_window": true)"),
              HasSubstr("use_sliding_window] true"));
}

TEST(ExpertsConfig, RoutersOfOtherFamiliesAreRefusedByName) {
  for (const char* key : {"n_routed_experts", "n_shared_experts", "scoring_func", "topk_method", "n_group",
                          "routed_scaling_factor", "first_k_dense_replace", "router_z_loss_coef"}) {
    EXPECT_THAT(problem_with_experts("qwen3_moe", std::string(", \"") + key + "\": 2"),
                AllOf(HasSubstr(std::string(key) + "] 2"), HasSubstr("Leave it out")));
  }
}

}  // namespace shoal::models
