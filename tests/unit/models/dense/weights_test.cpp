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
    int64_t numel = 0;  // of the last block: mixtures may begin with a dense one
    const std::vector<Unit> units = model->units();
    for (const Parameter& param : units[units.size() - 2].params) {
      numel += param.tensor.dim() >= 2 ? param.tensor.numel() : 0;
    }
    const forecast::DecoderShape& shape = model->info().shape;
    EXPECT_EQ(shape.most_numel > 0 ? shape.most_numel : shape.block_numel(), numel) << config;
  }
}

TEST(DenseWeights, OfExpertsAreOneParameterAndInFilesATensorForEachExpert) {
  const auto model = open_json(tiny_dense_json("mixtral", R"(, "num_key_value_heads": 1, "num_local_experts": 3)"));
  const std::vector<Unit> units = model->units();
  EXPECT_THAT(names_of(units[1]),
              ::testing::IsSupersetOf({"model.layers.0.mlp.gate.weight", "model.layers.0.mlp.experts.gate_up_proj",
                                       "model.layers.0.mlp.experts.down_proj"}));
  const StoredPieces pieces = model->stored_pieces();
  ASSERT_EQ(pieces.size(), 6u);
  const std::vector<StoredPiece>& gate_up = pieces.at("model.layers.1.mlp.experts.gate_up_proj");
  ASSERT_EQ(gate_up.size(), 6u);
  EXPECT_EQ(gate_up[3].name, "model.layers.1.block_sparse_moe.experts.1.w3.weight");
  EXPECT_EQ(gate_up[3].shape, (std::vector<int64_t>{20, 12}));
  EXPECT_EQ(gate_up[3].begin, 3 * 20 * 12);
  EXPECT_EQ(pieces.at("model.layers.1.mlp.gate.weight").at(0).name, "model.layers.1.block_sparse_moe.gate.weight");
  // Every piece has a place of its own, and together they are the whole.
  for (const Parameter& param : units[2].params) {
    if (!pieces.contains(param.name)) continue;
    int64_t end = 0;
    for (const StoredPiece& piece : pieces.at(param.name)) {
      EXPECT_EQ(piece.begin, end);
      int64_t numel = 1;
      for (const int64_t size : piece.shape) numel *= size;
      end += numel;
    }
    EXPECT_EQ(end, param.tensor.numel()) << param.name;
  }
  EXPECT_TRUE(open_json(testing::tiny_llama_json())->stored_pieces().empty());
}

}  // namespace shoal::models
