#include "models/dense/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "training/outcome.h"

namespace shoal::models {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;

namespace {

// A config of this type with these keys behind the shape.
HfConfig config_of(const std::string& type, const std::string& more = "") {
  return HfConfig(json::parse(R"({"model_type": ")" + type +
                                  R"(", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 128,)"
                                  R"( "num_hidden_layers": 4, "num_attention_heads": 8)" +
                                  more + "}",
                              "config.json"),
                  "config.json");
}

std::string problem_of(const std::string& type, const std::string& more) {
  return message_of([&] { read_dense_config(config_of(type, more)); });
}

constexpr const char* kLlama3 =
    R"("rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,)"
    R"( "original_max_position_embeddings": 8192)";

}  // namespace

TEST(DenseConfig, HasTheDefaultsOfTransformers) {
  const DenseConfig llama = read_dense_config(config_of("llama"));
  EXPECT_EQ(llama.kv_heads, 8);
  EXPECT_EQ(llama.head_dim, 8);
  EXPECT_EQ(llama.max_positions, 2048);
  EXPECT_EQ(llama.rope.theta, 10000);
  EXPECT_FALSE(llama.rope.scaling);
  EXPECT_FALSE(llama.tied || llama.qkv_bias || llama.qk_norm != QkNorm::none);
  EXPECT_EQ(read_dense_config(config_of("qwen3", R"(, "num_key_value_heads": 2)")).head_dim, 128);
}

TEST(DenseConfig, SwitchesFollowTheModelType) {
  const std::string kv = R"(, "num_key_value_heads": 2)";
  EXPECT_TRUE(read_dense_config(config_of("qwen2", kv)).qkv_bias);
  EXPECT_EQ(read_dense_config(config_of("qwen2", kv)).qk_norm, QkNorm::none);
  EXPECT_EQ(read_dense_config(config_of("qwen3", kv)).qk_norm, QkNorm::heads);
  EXPECT_FALSE(read_dense_config(config_of("mistral")).qkv_bias);
  EXPECT_EQ(read_dense_config(config_of("mistral")).kv_heads, 8);
}

TEST(DenseConfig, ReadsTheRotaryKeysOfTransformers4And5) {
  for (const std::string& more :
       {fmt::format(R"(, "rope_theta": 500000.0, "rope_scaling": {{{}}})", kLlama3),
        fmt::format(R"(, "rope_parameters": {{"rope_theta": 500000.0, {}}})", kLlama3),
        fmt::format(R"(, "rope_parameters": {{"rope_theta": 500000.0, {}}}, "rope_scaling": null)", kLlama3)}) {
    const DenseConfig read = read_dense_config(config_of("llama", more));
    EXPECT_EQ(read.rope.theta, 500000);
    ASSERT_TRUE(read.rope.scaling) << more;
    EXPECT_EQ(read.rope.scaling->factor, 32);
    EXPECT_EQ(read.rope.scaling->original_max_positions, 8192);
  }
  EXPECT_FALSE(read_dense_config(config_of("llama", R"(, "rope_parameters": {"rope_type": "default"})")).rope.scaling);
}

TEST(DenseConfig, TheExportHasBothFormsAndReadsBackTheSame) {
  const HfConfig config =
      config_of("llama", fmt::format(R"(, "rope_parameters": {{"rope_theta": 500000.0, {}}}, "extra": 1)", kLlama3));
  const json::Value exported = json::parse(export_dense_config(config, read_dense_config(config)), "exported");
  EXPECT_EQ(exported.find("extra")->as_integer(), 1);
  for (const char* dropped : {"rope_parameters", "rope_scaling"}) {
    json::Value one_form = exported;
    ASSERT_TRUE(one_form.erase(dropped));
    const DenseConfig read = read_dense_config(HfConfig(one_form, "exported"));
    EXPECT_EQ(read.rope.theta, 500000);
    ASSERT_TRUE(read.rope.scaling);
    EXPECT_EQ(read.rope.scaling->factor, 32);
  }
}

namespace {

// The windows of the four layers.
std::vector<int64_t> windows_of(const std::string& type, const std::string& more) {
  const DenseConfig read =
      read_dense_config(config_of(type, R"(, "num_key_value_heads": 2, "pad_token_id": null, "head_dim": 8)" + more));
  std::vector<int64_t> windows;
  for (const DenseLayer& layer : read.each_layer) windows.push_back(layer.window);
  return windows;
}

}  // namespace

TEST(DenseConfig, ASlidingWindowIsOfTheLayersThatHaveIt) {
  using Windows = std::vector<int64_t>;
  const std::string uses = R"(, "sliding_window": 1024, "use_sliding_window": true)";
  EXPECT_EQ(windows_of("mistral", ""), Windows(4, 4096));
  EXPECT_EQ(windows_of("mistral", R"(, "sliding_window": null)"), Windows(4, 0));
  EXPECT_EQ(windows_of("mistral", R"(, "sliding_window": 1024)"), Windows(4, 1024));
  EXPECT_EQ(windows_of("phi3", R"(, "sliding_window": 1024)"), Windows(4, 1024));
  EXPECT_EQ(windows_of("phi3", ""), Windows(4, 0));
  EXPECT_EQ(windows_of("qwen2", R"(, "sliding_window": 1024)"), Windows(4, 0));
  EXPECT_EQ(windows_of("qwen2", uses), Windows(4, 0));
  EXPECT_EQ(windows_of("qwen2", R"(, "use_sliding_window": true, "max_window_layers": 2)"),
            (Windows{0, 0, 4096, 4096}));
  EXPECT_EQ(windows_of("qwen2", uses + R"(, "max_window_layers": 2)"), (Windows{0, 0, 1024, 1024}));
  EXPECT_EQ(windows_of("qwen2", uses + R"(, "max_window_layers": 0)"), Windows(4, 1024));
  EXPECT_EQ(windows_of("qwen3", uses + R"(, "layer_types": ["full_attention", "sliding_attention",)"
                                       R"( "sliding_attention", "full_attention"])"),
            (Windows{0, 1024, 1024, 0}));
  EXPECT_EQ(windows_of("llama", R"(, "sliding_window": 1024)"), Windows(4, 0));
  EXPECT_EQ(windows_of("gemma", R"(, "sliding_window": 1024)"), Windows(4, 0));
  EXPECT_EQ(windows_of("gemma2", ""), (Windows{4096, 0, 4096, 0}));
  EXPECT_EQ(windows_of("gemma3_text", R"(, "sliding_window": 8)"), Windows(4, 8));
  EXPECT_EQ(windows_of("gemma3_text", R"(, "sliding_window": 8, "sliding_window_pattern": 3)"), (Windows{8, 8, 0, 8}));
  EXPECT_EQ(windows_of("olmo3", R"(, "sliding_window_pattern": 2)"), (Windows{4096, 4096, 4096, 0}));
  EXPECT_EQ(windows_of("smollm3", uses), (Windows{0, 0, 0, 1024}));
}

TEST(DenseConfig, LayerTypesThatTransformersWouldNotReadAreRefused) {
  const std::string all = R"("full_attention", "full_attention", "full_attention")",
                    window = R"(, "sliding_window": 8)";
  const std::string one = R"(, "layer_types": ["sliding_attention", )" + all + "]";
  EXPECT_THAT(problem_of("llama", window + one), HasSubstr("no layers of llama have a window"));
  EXPECT_THAT(problem_of("mistral", window + one), HasSubstr("all layers of mistral have a window"));
  EXPECT_THAT(problem_of("qwen2", R"(, "num_key_value_heads": 2)" + window + one), HasSubstr("use_sliding_window"));
  EXPECT_THAT(problem_of("gemma2", window + R"(, "layer_types": ["full_attention"])"),
              HasSubstr("each of the 4 layers"));
}

TEST(DenseConfig, LayersOfAWindowTurnByTheirOwnBase) {
  const DenseConfig read = read_dense_config(config_of("gemma3_text", R"(, "sliding_window_pattern": 2)"));
  EXPECT_EQ(read.each_layer[0].rope, DenseLayer::Rope::local);
  EXPECT_EQ(read.each_layer[1].rope, DenseLayer::Rope::global);
  const DenseConfig smol = read_dense_config(config_of("smollm3", R"(, "pad_token_id": null)"));
  EXPECT_EQ(smol.each_layer[2].rope, DenseLayer::Rope::global);
  EXPECT_EQ(smol.each_layer[3].rope, DenseLayer::Rope::none);
}

TEST(DenseConfig, NullKeyValueHeadsAreAsManyAsHeads) {
  EXPECT_THAT(problem_of("qwen2", ""),
              HasSubstr("num_key_value_heads] null is not supported. Left out it is 32. Use a"));
  EXPECT_EQ(read_dense_config(config_of("mistral", R"(, "num_key_value_heads": null)")).kv_heads, 8);
  EXPECT_EQ(read_dense_config(config_of("smollm3", R"(, "pad_token_id": 0, "num_key_value_heads": null)")).kv_heads, 8);
  EXPECT_EQ(read_dense_config(config_of("smollm3", R"(, "pad_token_id": 0)")).kv_heads, 4);
}

TEST(DenseConfig, ADefaultPaddingTokenBeyondTheVocabularyIsNamed) {
  EXPECT_THAT(problem_of("phi3", ""), AllOf(HasSubstr("pad_token_id] null"), HasSubstr("Left out it is 32000")));
  EXPECT_EQ(read_dense_config(config_of("phi3", R"(, "pad_token_id": null)")).padding_token, std::nullopt);
  EXPECT_EQ(read_dense_config(config_of("olmo2")).padding_token, 1);
  EXPECT_EQ(read_dense_config(config_of("gpt_neox", R"(, "pad_token_id": 5)")).padding_token, std::nullopt);
}

TEST(DenseConfig, RefusesWhatItWouldComputeDifferently) {
  EXPECT_THAT(problem_of("llama", R"(, "hidden_act": "mish")"), AllOf(HasSubstr("hidden_act"), HasSubstr("\"mish\"")));
  EXPECT_THAT(problem_of("mistral", R"(, "attention_bias": true)"), HasSubstr("attention_bias] true"));
  EXPECT_THAT(problem_of("qwen2", R"(, "num_key_value_heads": 2, "mlp_bias": true)"), HasSubstr("mlp_bias"));
  EXPECT_THAT(problem_of("llama", R"(, "partial_rotary_factor": 0.5)"), HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(problem_of("gemma2", R"(, "use_bidirectional_attention": true)"),
              HasSubstr("use_bidirectional_attention"));
  EXPECT_THAT(problem_of("gemma2", R"(, "final_logit_softcapping": -1)"), HasSubstr("final_logit_softcapping] -1"));
  EXPECT_THAT(problem_of("gemma3_text", R"(, "attn_logit_softcapping": 50.0)"), HasSubstr("attn_logit_softcapping"));
  EXPECT_THAT(
      problem_of("gemma",
                 R"(, "num_key_value_heads": 2, "hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh")"),
      HasSubstr("hidden_activation"));
  const std::string gemma = R"(, "num_key_value_heads": 2, "hidden_act": "gelu")";
  EXPECT_THAT(problem_of("gemma", gemma), AllOf(HasSubstr("hidden_act] \"gelu\""), HasSubstr("gelu_pytorch_tanh")));
  EXPECT_EQ(read_dense_config(config_of("gemma", gemma + R"(, "hidden_activation": "gelu")")).activation,
            Activation::gelu_exact);
  EXPECT_THAT(problem_of("llama", R"(, "per_layer_config": {"1": {"intermediate_size": 64}})"),
              HasSubstr("per_layer_config"));
  EXPECT_EQ(problem_of("llama", R"(, "per_layer_config": {})"), "");
  EXPECT_THAT(problem_of("granite", R"(, "logits_scaling": 0)"), HasSubstr("logits_scaling] 0"));
  EXPECT_THAT(problem_of("phi3", R"(, "pad_token_id": 1, "embd_pdrop": 0.1)"), HasSubstr("embd_pdrop"));
  EXPECT_THAT(problem_of("opt", R"(, "ffn_dim": 8, "do_layer_norm_before": false)"), HasSubstr("do_layer_norm_before"));
  EXPECT_THAT(problem_of("opt", R"(, "ffn_dim": 8, "word_embed_proj_dim": 8)"), HasSubstr("word_embed_proj_dim"));
  EXPECT_THAT(problem_of("falcon", R"(, "alibi": true)"), HasSubstr("alibi"));
  EXPECT_THAT(problem_of("falcon", R"(, "hidden_dropout": 0.1)"), HasSubstr("hidden_dropout"));
  EXPECT_THAT(problem_of("opt", R"(, "ffn_dim": 8, "head_dim": 16)"), HasSubstr("head_dim] 16"));
  EXPECT_THAT(problem_of("opt", R"(, "ffn_dim": 8, "num_key_value_heads": 2)"), HasSubstr("num_key_value_heads] 2"));
  EXPECT_THAT(problem_of("deepseek_v3", ""), HasSubstr("model_type] \"deepseek_v3\""));
  EXPECT_THAT(problem_of("llama", R"(, "quantization_config": {})"), HasSubstr("quantization_config"));
  EXPECT_THAT(problem_of("qwen3", R"(, "num_key_value_heads": 2, "layer_types": ["linear_attention"])"),
              HasSubstr("layer_types"));
}

TEST(DenseConfig, APaddingTokenCountsFromTheEndWhenNegative) {
  const auto padding = [](const std::string& more) {
    return read_dense_config(config_of("llama", more)).padding_token;
  };
  EXPECT_EQ(padding(""), std::nullopt);
  EXPECT_EQ(padding(R"(, "pad_token_id": null)"), std::nullopt);
  EXPECT_EQ(padding(R"(, "pad_token_id": 0)"), 0);
  EXPECT_EQ(padding(R"(, "pad_token_id": 99)"), 99);
  EXPECT_EQ(padding(R"(, "pad_token_id": -1)"), 99);
  EXPECT_EQ(padding(R"(, "pad_token_id": -100)"), 0);
  EXPECT_THAT(problem_of("llama", R"(, "pad_token_id": 100)"), HasSubstr("pad_token_id] 100"));
  EXPECT_THAT(problem_of("llama", R"(, "pad_token_id": -101)"), HasSubstr("pad_token_id] -101"));
  EXPECT_THAT(problem_of("llama", R"(, "pad_token_id": "x")"), HasSubstr("pad_token_id"));
}

TEST(DenseConfig, RefusesShapesThatDoNotDivide) {
  EXPECT_THAT(problem_of("llama", R"(, "num_key_value_heads": 3)"), HasSubstr("num_key_value_heads] 3"));
  EXPECT_THAT(problem_of("llama", R"(, "head_dim": 7)"), HasSubstr("head_dim] 7"));
  EXPECT_THAT(problem_of("llama", R"(, "rope_theta": 0)"), HasSubstr("rope_theta"));
  EXPECT_THAT(problem_of("llama", fmt::format(R"(, "rope_parameters": {{{}}})", R"("rope_type": "llama3")")),
              HasSubstr("rope_parameters.factor"));
}

}  // namespace shoal::models
