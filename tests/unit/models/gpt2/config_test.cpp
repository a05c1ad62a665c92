#include "models/gpt2/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "training/outcome.h"

namespace shoal::models {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;

namespace {

Gpt2Config read(const std::string& text) {
  return read_gpt2_config(HfConfig(json::parse(text, "config.json"), "config.json"));
}
std::string problem_of(const std::string& text) {
  return message_of([&] { read(text); });
}

}  // namespace

TEST(Gpt2Config, HasTheDefaultsOfTransformers) {
  const Gpt2Config config = read("{}");
  EXPECT_EQ(config.vocab, 50257);
  EXPECT_EQ(config.hidden, 768);
  EXPECT_EQ(config.ffn, 3072);
  EXPECT_EQ(config.max_positions, 1024);
  EXPECT_EQ(config.embedding_dropout, 0.1);
  EXPECT_EQ(config.attention_dropout, 0.1);
  EXPECT_EQ(config.residual_dropout, 0.1);
  EXPECT_TRUE(config.tied);
  EXPECT_FALSE(config.exact_gelu);
}

TEST(Gpt2Config, ReadsItsKeys) {
  const Gpt2Config config = read(
      R"({"n_embd": 12, "n_head": 3, "n_inner": 7, "resid_pdrop": 0, "attn_pdrop": 0.25, "tie_word_embeddings": false,)"
      R"( "activation_function": "gelu"})");
  EXPECT_EQ(config.ffn, 7);
  EXPECT_EQ(config.residual_dropout, 0);
  EXPECT_EQ(config.attention_dropout, 0.25);
  EXPECT_FALSE(config.tied);
  EXPECT_TRUE(config.exact_gelu);
}

TEST(Gpt2Config, RefusesWhatItWouldComputeDifferently) {
  EXPECT_THAT(problem_of(R"({"activation_function": "relu"})"),
              AllOf(HasSubstr("activation_function"), HasSubstr("relu")));
  EXPECT_THAT(problem_of(R"({"scale_attn_weights": false})"), HasSubstr("scale_attn_weights] false"));
  EXPECT_THAT(problem_of(R"({"scale_attn_by_inverse_layer_idx": true})"), HasSubstr("scale_attn_by_inverse_layer_idx"));
  EXPECT_THAT(problem_of(R"({"add_cross_attention": true})"), HasSubstr("add_cross_attention"));
  EXPECT_THAT(problem_of(R"({"quantization_config": {}})"), HasSubstr("quantization_config"));
  EXPECT_THAT(problem_of(R"({"n_head": 7})"), HasSubstr("n_head] 7"));
}

}  // namespace shoal::models
