#include "models/dense/model.h"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "unit/models/tiny_families.h"
#include "unit/models/tiny_model.h"

namespace shoal::models {

using testing::open_json;
using testing::tiny_llama_json;
using testing::TinyTraining;

namespace {

// "name shape" of every parameter of a unit.
std::vector<std::string> params_of(const Unit& unit) {
  std::vector<std::string> lines;
  for (const Parameter& param : unit.params) {
    std::string line = param.name;
    for (const int64_t length : param.tensor.sizes()) line += " " + std::to_string(length);
    lines.push_back(line);
  }
  return lines;
}

}  // namespace

TEST(Llama, HasTheNamesAndShapesOfItsCheckpoints) {
  const auto model = open_json(tiny_llama_json(R"(, "num_key_value_heads": 1)"));
  const std::vector<Unit> units = model->units();
  ASSERT_EQ(units.size(), 4u);
  EXPECT_EQ(units[2].name, "model.layers.1");
  EXPECT_THAT(params_of(units[0]), ::testing::ElementsAre("model.embed_tokens.weight 29 12"));
  EXPECT_THAT(params_of(units[2]),
              ::testing::UnorderedElementsAre(
                  "model.layers.1.input_layernorm.weight 12", "model.layers.1.self_attn.q_proj.weight 12 12",
                  "model.layers.1.self_attn.k_proj.weight 6 12", "model.layers.1.self_attn.v_proj.weight 6 12",
                  "model.layers.1.self_attn.o_proj.weight 12 12", "model.layers.1.post_attention_layernorm.weight 12",
                  "model.layers.1.mlp.gate_proj.weight 20 12", "model.layers.1.mlp.up_proj.weight 20 12",
                  "model.layers.1.mlp.down_proj.weight 12 20"));
  EXPECT_THAT(params_of(units[3]), ::testing::ElementsAre("model.norm.weight 12", "lm_head.weight 29 12"));
  EXPECT_EQ(model->info().numel, 29 * 12 * 2 + 12 + 2 * (2 * 12 + 12 * 12 * 2 + 2 * 6 * 12 + 3 * 20 * 12));
}

TEST(Dense, ItsShapeSaysTheWindowsOfItsLayers) {
  const auto windows = [](const std::string& type, const std::string& more) {
    return open_json(testing::tiny_dense_json(type, more + R"(, "num_key_value_heads": 1)"))->info().shape.windows;
  };
  EXPECT_EQ(windows("gemma2", R"(, "sliding_window": 3)"), (std::vector<int64_t>{3, 0}));
  EXPECT_EQ(windows("mistral", R"(, "sliding_window": 3)"), (std::vector<int64_t>{3, 3}));
  EXPECT_EQ(windows("llama", ""), (std::vector<int64_t>{0, 0}));
}

// 12 wide, of which heads are 12 and keys and values 6; 4 tokens.
TEST(Dense, ItsShapeCountsTheExpertsThatATokenPasses) {
  const auto flops = [](const std::string& type, const std::string& more) {
    const auto model = open_json(testing::tiny_dense_json(
        type, more + R"(, "num_key_value_heads": 1, "num_experts_per_tok": 2, "num_experts": 5)"));
    return forecast::model_flops_a_token(model->info().shape, 4);
  };
  const int64_t attention = 12 * (2 * 12 + 2 * 6), scores = 3 * 4 * 12 * 2, head = 12 * 29;
  const int64_t expert = 3 * 12 * 20, router = 5 * 12;
  EXPECT_EQ(flops("mixtral", ""), 2 * (6 * (attention + 2 * expert + router) + scores) + 6 * head);
  // A dense layer first; experts of 8, and one of 16 for all tokens with its gate.
  const int64_t shared = 3 * 12 * (2 * 8 + 16) + router + 12;
  EXPECT_EQ(flops("qwen2_moe", R"(, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 16,)"
                               R"( "mlp_only_layers": [0])"),
            6 * (2 * attention + expert + shared) + 2 * scores + 6 * head);
}

TEST(Llama, ATiedHeadIsTheEmbedding) {
  const auto model = open_json(tiny_llama_json(R"(, "tie_word_embeddings": true)"));
  const std::vector<Unit> units = model->units();
  EXPECT_EQ(units.back().params.at(1).name, "lm_head.weight");
  EXPECT_TRUE(units.back().params.at(1).tensor.is_same(units[0].params.at(0).tensor));
}

TEST(Llama, StartsAsTransformersDoes) {
  const auto model = open_json(tiny_llama_json(R"(, "initializer_range": 0.5)"));
  for (const Unit& unit : model->units()) {
    for (const Parameter& param : unit.params) {
      std::vector<float> values(static_cast<size_t>(param.tensor.numel()));
      param.source->read(0, param.tensor.numel(), values.data());
      const at::Tensor tensor = at::tensor(values);
      if (param.tensor.dim() == 1) {
        EXPECT_TRUE(tensor.eq(1).all().item<bool>()) << param.name;
      } else {
        EXPECT_NEAR(tensor.mean().item<double>(), 0, 0.2) << param.name;
        EXPECT_NEAR(tensor.std().item<double>(), 0.5, 0.15) << param.name;
      }
    }
  }
}

TEST(Llama, TheRowOfAPaddingTokenBeginsAtZeroAndIsNotTrained) {
  const auto world = make_single_group();
  const std::string config = tiny_llama_json(R"(, "pad_token_id": 7)");
  const auto row_after = [&](const std::string& json, int64_t token) {
    TinyTraining training({.config_json = json}, *world);
    const Parameter embedding = training.model->units()[0].params.at(0);
    at::Tensor before, after;
    const auto read = [&](at::Tensor& row) {
      training.engine.with_gathered({embedding.name}, Access::read, [&] { row = embedding.tensor[token].clone(); });
    };
    read(before);
    EXPECT_EQ(before.eq(0).all().item<bool>(), json == config && token == 7) << json;
    const at::Tensor tokens = at::full({2, 4}, token, at::kLong);
    training.engine.backward(training.model->loss(training.engine, tokens, TinyTraining::tokens(1, 4)));
    training.engine.step();
    read(after);
    return after.sub(before).abs().max().item<double>();
  };
  EXPECT_EQ(row_after(config, 7), 0);
  EXPECT_GT(row_after(config, 8), 0);
  EXPECT_GT(row_after(tiny_llama_json(), 7), 0);
}

TEST(Llama, APositionSeesNoLaterToken) {
  const auto world = make_single_group();
  TinyTraining training({.config_json = tiny_llama_json()}, *world);
  at::Tensor tokens = TinyTraining::tokens(1);
  const at::Tensor before = training.logits(tokens);
  tokens = tokens.clone();
  tokens.select(1, 6).add_(1).remainder_(testing::kTinyVocab);
  const at::Tensor after = training.logits(tokens);
  EXPECT_TRUE(before.narrow(1, 0, 6).equal(after.narrow(1, 0, 6)));
  EXPECT_FALSE(before.narrow(1, 6, 3).equal(after.narrow(1, 6, 3)));
}

TEST(Llama, BeginsAtTheEntropyOfTheVocabularyAndLearns) {
  for (const char* precision : {"fp32", "bf16"}) {
    for (const char* more : {"", R"(, "tie_word_embeddings": true, "num_key_value_heads": 1)"}) {
      const auto world = make_single_group();
      TinyTraining training({.config_json = tiny_llama_json(more), .precision = precision}, *world);
      double loss = training.train_step(0);
      EXPECT_NEAR(loss, std::log(29.0), 0.1);
      for (int step = 0; step < 30; ++step) loss = training.train_step(0);
      EXPECT_LT(loss, 2.0) << precision << more;
    }
  }
}

TEST(Llama, AttentionDropoutIsInTrainingOnly) {
  const auto world = make_single_group();
  const std::string with = tiny_llama_json(R"(, "attention_dropout": 0.3, "initializer_range": 0.5)");
  const std::string without = tiny_llama_json(R"(, "initializer_range": 0.5)");
  TinyTraining dropping({.config_json = with}, *world);
  TinyTraining plain({.config_json = without}, *world);
  EXPECT_EQ(dropping.evaluate(0), plain.evaluate(0));
  EXPECT_NE(dropping.train_step(0), plain.train_step(0));
}

}  // namespace shoal::models
