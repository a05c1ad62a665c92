#include "models/llama/config.h"

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
  return message_of([&] { read_llama_config(config_of(type, more)); });
}

constexpr const char* kLlama3 =
    R"("rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,)"
    R"( "original_max_position_embeddings": 8192)";

}  // namespace

TEST(LlamaConfig, HasTheDefaultsOfTransformers) {
  const LlamaConfig llama = read_llama_config(config_of("llama"));
  EXPECT_EQ(llama.kv_heads, 8);
  EXPECT_EQ(llama.head_dim, 8);
  EXPECT_EQ(llama.max_positions, 2048);
  EXPECT_EQ(llama.rope.theta, 10000);
  EXPECT_FALSE(llama.rope.scaling);
  EXPECT_FALSE(llama.tied || llama.qkv_bias || llama.qk_norms);
  EXPECT_EQ(read_llama_config(config_of("qwen3", R"(, "num_key_value_heads": 2)")).head_dim, 128);
}

TEST(LlamaConfig, SwitchesFollowTheModelType) {
  const std::string kv = R"(, "num_key_value_heads": 2)";
  EXPECT_TRUE(read_llama_config(config_of("qwen2", kv)).qkv_bias);
  EXPECT_FALSE(read_llama_config(config_of("qwen2", kv)).qk_norms);
  EXPECT_TRUE(read_llama_config(config_of("qwen3", kv)).qk_norms);
  EXPECT_FALSE(read_llama_config(config_of("mistral")).qkv_bias);
  EXPECT_EQ(read_llama_config(config_of("mistral")).kv_heads, 8);
}

TEST(LlamaConfig, ReadsTheRotaryKeysOfTransformers4And5) {
  for (const std::string& more :
       {fmt::format(R"(, "rope_theta": 500000.0, "rope_scaling": {{{}}})", kLlama3),
        fmt::format(R"(, "rope_parameters": {{"rope_theta": 500000.0, {}}})", kLlama3),
        fmt::format(R"(, "rope_parameters": {{"rope_theta": 500000.0, {}}}, "rope_scaling": null)", kLlama3)}) {
    const LlamaConfig read = read_llama_config(config_of("llama", more));
    EXPECT_EQ(read.rope.theta, 500000);
    ASSERT_TRUE(read.rope.scaling) << more;
    EXPECT_EQ(read.rope.scaling->factor, 32);
    EXPECT_EQ(read.rope.scaling->original_max_positions, 8192);
  }
  EXPECT_FALSE(read_llama_config(config_of("llama", R"(, "rope_parameters": {"rope_type": "default"})")).rope.scaling);
}

TEST(LlamaConfig, TheExportHasBothFormsAndReadsBackTheSame) {
  const HfConfig config =
      config_of("llama", fmt::format(R"(, "rope_parameters": {{"rope_theta": 500000.0, {}}}, "extra": 1)", kLlama3));
  const json::Value exported =
      json::parse(export_llama_config(config, read_llama_config(config), "LlamaForCausalLM"), "exported");
  EXPECT_EQ(exported.find("extra")->as_integer(), 1);
  for (const char* dropped : {"rope_parameters", "rope_scaling"}) {
    json::Value one_form = exported;
    ASSERT_TRUE(one_form.erase(dropped));
    const LlamaConfig read = read_llama_config(HfConfig(one_form, "exported"));
    EXPECT_EQ(read.rope.theta, 500000);
    ASSERT_TRUE(read.rope.scaling);
    EXPECT_EQ(read.rope.scaling->factor, 32);
  }
}

TEST(LlamaConfig, ASlidingWindowLimitsTheLength) {
  const auto positions = [](const char* type, const std::string& more) {
    return read_llama_config(config_of(type, R"(, "num_key_value_heads": 2, "max_position_embeddings": 32768)" + more))
        .max_positions;
  };
  EXPECT_EQ(positions("mistral", ""), 4096);
  EXPECT_EQ(positions("mistral", R"(, "sliding_window": null)"), 32768);
  EXPECT_EQ(positions("mistral", R"(, "sliding_window": 1024)"), 1024);
  EXPECT_EQ(positions("mistral", R"(, "sliding_window": 65536)"), 32768);
  EXPECT_EQ(positions("qwen2", R"(, "sliding_window": 1024)"), 32768);
  EXPECT_EQ(positions("qwen2", R"(, "sliding_window": 1024, "use_sliding_window": true)"), 32768);
  EXPECT_EQ(positions("qwen2", R"(, "sliding_window": 1024, "use_sliding_window": true, "max_window_layers": 2)"),
            1024);
  EXPECT_EQ(positions("qwen3", R"(, "sliding_window": 1024, "layer_types": ["full_attention", "sliding_attention"])"),
            1024);
  EXPECT_EQ(positions("llama", R"(, "sliding_window": 1024)"), 32768);
}

TEST(LlamaConfig, RefusesWhatItWouldComputeDifferently) {
  EXPECT_THAT(problem_of("llama", R"(, "hidden_act": "gelu")"), AllOf(HasSubstr("hidden_act"), HasSubstr("\"gelu\"")));
  EXPECT_THAT(problem_of("llama", R"(, "attention_bias": true)"), HasSubstr("attention_bias] true"));
  EXPECT_THAT(problem_of("qwen3", R"(, "num_key_value_heads": 2, "attention_bias": true)"),
              HasSubstr("attention_bias] true"));
  EXPECT_THAT(problem_of("llama", R"(, "mlp_bias": true)"), HasSubstr("mlp_bias"));
  EXPECT_THAT(problem_of("llama", R"(, "rope_scaling": {"type": "yarn", "factor": 2.0})"),
              AllOf(HasSubstr("rope_scaling.type"), HasSubstr("\"yarn\"")));
  EXPECT_THAT(problem_of("llama", R"(, "rope_parameters": {"rope_type": "linear"})"),
              AllOf(HasSubstr("rope_parameters.rope_type"), HasSubstr("\"linear\"")));
  EXPECT_THAT(problem_of("llama", R"(, "partial_rotary_factor": 0.5)"), HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(problem_of("llama", R"(, "quantization_config": {})"), HasSubstr("quantization_config"));
  EXPECT_THAT(problem_of("qwen3", R"(, "num_key_value_heads": 2, "layer_types": ["linear_attention"])"),
              HasSubstr("layer_types"));
}

TEST(LlamaConfig, APaddingTokenCountsFromTheEndWhenNegative) {
  const auto padding = [](const std::string& more) {
    return read_llama_config(config_of("llama", more)).padding_token;
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

TEST(LlamaConfig, RefusesShapesThatDoNotDivide) {
  EXPECT_THAT(problem_of("llama", R"(, "num_key_value_heads": 3)"), HasSubstr("num_key_value_heads] 3"));
  EXPECT_THAT(problem_of("llama", R"(, "head_dim": 7)"), HasSubstr("head_dim] 7"));
  EXPECT_THAT(problem_of("llama", R"(, "rope_theta": 0)"), HasSubstr("rope_theta"));
  EXPECT_THAT(problem_of("llama", fmt::format(R"(, "rope_parameters": {{{}}})", R"("rope_type": "llama3")")),
              HasSubstr("rope_parameters.factor"));
}

}  // namespace shoal::models
