#include "models/dense/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/models/tiny_families.h"
#include "unit/models/tiny_model.h"

namespace shoal::models {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::open_json;
using testing::tiny_dense_json;

namespace {

std::vector<std::string> names_of(const Unit& unit) {
  std::vector<std::string> names;
  for (const Parameter& param : unit.params) names.push_back(param.name);
  return names;
}

}  // namespace

TEST(DenseWeights, HaveTheNamesOfTheirCheckpoints) {
  const auto neox = open_json(tiny_dense_json("gpt_neox", R"(, "rotary_pct": 0.34)"))->units();
  EXPECT_THAT(names_of(neox.back()),
              ElementsAre("gpt_neox.final_layer_norm.weight", "gpt_neox.final_layer_norm.bias", "embed_out.weight"));
  EXPECT_THAT(names_of(neox[1]), Contains("gpt_neox.layers.0.attention.query_key_value.bias"));
  const auto falcon = open_json(tiny_dense_json("falcon", R"(, "new_decoder_architecture": true)"))->units();
  EXPECT_THAT(names_of(falcon[1]), Contains("transformer.h.0.ln_mlp.bias"));
  EXPECT_THAT(names_of(falcon[1]), ::testing::Not(Contains("transformer.h.0.input_layernorm.bias")));
  const auto olmo = open_json(tiny_dense_json("olmo2", ""))->units();
  EXPECT_THAT(names_of(olmo[1]), ::testing::Not(Contains("model.layers.0.input_layernorm.weight")));
  EXPECT_THAT(names_of(olmo[1]), Contains("model.layers.0.post_feedforward_layernorm.weight"));
}

TEST(DenseWeights, GemmasNormsBeginAtZero) {
  const auto units = open_json(tiny_dense_json("gemma2", R"(, "num_key_value_heads": 1)"))->units();
  float value = 1;
  units.back().params[0].source->read(0, 1, &value);
  EXPECT_EQ(value, 0);
}

// A unit's shape for the forecast has the matrices of the unit, however they lie.
TEST(DenseWeights, AreThoseOfTheShape) {
  for (const std::string& config : testing::tiny_families()) {
    const auto model = open_json(config);
    int64_t numel = 0;
    for (const Parameter& param : model->units()[1].params) numel += param.tensor.dim() == 2 ? param.tensor.numel() : 0;
    EXPECT_EQ(model->info().shape.block_numel(), numel) << config;
  }
}

}  // namespace shoal::models
