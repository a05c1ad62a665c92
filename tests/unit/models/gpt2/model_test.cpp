#include "models/gpt2/model.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "unit/models/tiny_model.h"

namespace shoal::models {

using testing::kNoDropout;
using testing::open_json;
using testing::tiny_gpt2_json;
using testing::TinyTraining;

namespace {

double deviation_of(const Parameter& param) {
  std::vector<float> values(static_cast<size_t>(param.tensor.numel()));
  param.source->read(0, param.tensor.numel(), values.data());
  return at::tensor(values).std().item<double>();
}

}  // namespace

TEST(Gpt2, HasTheNamesAndShapesOfItsCheckpoints) {
  const std::vector<Unit> units = open_json(tiny_gpt2_json())->units();
  ASSERT_EQ(units.size(), 4u);
  std::vector<std::string> names;
  for (const Parameter& param : units[1].params)
    names.push_back(param.name.substr(std::string("transformer.h.0.").size()));
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("ln_1.weight", "ln_1.bias", "attn.c_attn.weight",
                                                     "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
                                                     "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias",
                                                     "mlp.c_proj.weight", "mlp.c_proj.bias"));
  EXPECT_EQ(units[0].params.at(1).name, "transformer.wpe.weight");
  EXPECT_EQ(units[1].params.at(2).tensor.sizes().vec(), (std::vector<int64_t>{12, 36}));
  EXPECT_EQ(units[3].params.at(2).name, "lm_head.weight");
  EXPECT_TRUE(units[3].params.at(2).tensor.is_same(units[0].params.at(0).tensor));
}

TEST(Gpt2, WhatAddsToTheResidualStreamBeginsSmaller) {
  const std::vector<Unit> units = open_json(tiny_gpt2_json(R"(, "initializer_range": 0.5, "n_inner": 200)"))->units();
  for (const Parameter& param : units[1].params) {
    if (param.tensor.dim() != 2) continue;
    const double wanted = param.name.find("c_proj") == std::string::npos ? 0.5 : 0.5 / std::sqrt(2.0 * 2);
    EXPECT_NEAR(deviation_of(param), wanted, 0.2 * wanted) << param.name;
  }
}

TEST(Gpt2, APositionSeesNoLaterTokenAndKnowsWhereItStands) {
  const auto world = make_single_group();
  TinyTraining training({.config_json = tiny_gpt2_json(R"(, "initializer_range": 0.5)")}, *world);
  at::Tensor tokens = at::zeros({2, 9}, at::kLong);
  const at::Tensor before = training.logits(tokens);
  EXPECT_FALSE(before.select(1, 3).equal(before.select(1, 4)));
  tokens.select(1, 6).fill_(5);
  EXPECT_TRUE(before.narrow(1, 0, 6).equal(training.logits(tokens).narrow(1, 0, 6)));
}

TEST(Gpt2, BeginsAtTheEntropyOfTheVocabularyAndLearns) {
  for (const char* precision : {"fp32", "bf16"}) {
    const auto world = make_single_group();
    TinyTraining training({.config_json = tiny_gpt2_json(kNoDropout), .precision = precision}, *world);
    double loss = training.train_step(0);
    EXPECT_NEAR(loss, std::log(29.0), 0.1);
    for (int step = 0; step < 30; ++step) loss = training.train_step(0);
    EXPECT_LT(loss, 2.0) << precision;
  }
}

TEST(Gpt2, DropoutRepeatsBySeedAndIsOffInEvaluation) {
  const auto world = make_single_group();
  const auto losses = [&](uint64_t seed) {
    TinyTraining training({.config_json = tiny_gpt2_json(), .seed = seed}, *world);
    return training.train(3);
  };
  EXPECT_EQ(losses(1), losses(1));
  EXPECT_NE(losses(1), losses(2));
  TinyTraining dropping({.config_json = tiny_gpt2_json()}, *world);
  TinyTraining plain({.config_json = tiny_gpt2_json(kNoDropout)}, *world);
  EXPECT_EQ(dropping.evaluate(0), plain.evaluate(0));
  EXPECT_NE(dropping.train_step(0), plain.train_step(0));
}

TEST(Gpt2, EachKindOfDropoutHasAnEffect) {
  const auto world = make_single_group();
  const auto loss = [&](const std::string& key) {
    std::string config = tiny_gpt2_json(kNoDropout + R"(, "initializer_range": 0.5)");
    if (const size_t at = config.find("\"" + key + "\": 0"); at != std::string::npos) {
      config.insert(at + key.size() + 5, ".5");
    }
    TinyTraining training({.config_json = config}, *world);
    return training.train_step(0);
  };
  const double none = loss("");
  for (const char* key : {"embd_pdrop", "attn_pdrop", "resid_pdrop"}) EXPECT_NE(loss(key), none) << key;
}

}  // namespace shoal::models
