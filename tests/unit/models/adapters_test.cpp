#include "models/adapters.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "message_of.h"
#include "training/outcome.h"
#include "unit/models/measured_nbytes.h"
#include "unit/models/tiny_families.h"
#include "unit/models/tiny_model.h"

namespace shoal::models {

using ::testing::HasSubstr;
using testing::message_of;
using testing::open_json;
using testing::tiny_gpt2_json;
using testing::tiny_llama_json;
using testing::TinyTraining;

namespace {

const LoraSpec kAll = {.rank = 3, .alpha = 6, .targets = {kAllLinear}};

// As many as the model of this config can have.
LoraSpec all_of(const std::string& config) {
  const std::vector<std::string> mixtures = testing::tiny_mixtures();
  if (std::find(mixtures.begin(), mixtures.end(), config) == mixtures.end()) return kAll;
  return {.rank = 3, .alpha = 6, .targets = {"q_proj", "k_proj", "v_proj", "o_proj"}};
}

LoraSpec dropping(LoraSpec spec) {
  spec.dropout = 0.3;
  return spec;
}

std::map<std::string, std::string> weights_of(TinyTraining& training) {
  std::map<std::string, std::string> weights;
  for (const Unit& unit : training.model->units()) {
    for (const Parameter& param : unit.params) {
      training.engine.with_gathered({param.name}, Access::read,
                                    [&] { weights[param.name] = testing::bytes_of(param.tensor); });
    }
  }
  return weights;
}

bool is_of_adapter(const std::string& name) { return name.find(".lora_") != std::string::npos; }

}  // namespace

TEST(AdaptedLinears, AddTheProductOfBothScaled) {
  const at::Tensor x = at::randn({2, 5, 4}), weight = at::randn({6, 4}), bias = at::randn({6}), none;
  const Adapter adapter = {.a = at::randn({3, 4}), .b = at::randn({6, 3}), .scale = 0.5, .dropout = 0};
  Adapter fresh = adapter;
  fresh.b = at::zeros({6, 3});
  const Adapter absent;
  const auto made = adapted_linears(ops::Matmul::plain, x,
                                    {{weight, bias, adapter}, {weight, none, absent}, {weight, bias, fresh}}, {});
  const at::Tensor wanted = at::linear(x, weight, bias).add(at::linear(x, adapter.b.mm(adapter.a)), 0.5);
  EXPECT_LT(made[0].sub(wanted).abs().max().item<float>(), 1e-5);
  EXPECT_TRUE(made[1].equal(at::linear(x, weight)));
  EXPECT_TRUE(made[2].equal(at::linear(x, weight, bias)));
}

TEST(Lora, EveryFamilyBeginsWithTheLossOfItsBaseToTheBit) {
  std::vector<std::string> configs = testing::tiny_families();
  configs.push_back(tiny_llama_json());
  configs.push_back(tiny_gpt2_json());
  const auto world = make_single_group();
  for (const std::string& config : configs) {
    for (const char* precision : {"fp32", "bf16"}) {
      TinyTraining base({.config_json = config, .open = {.seed = 4}, .precision = precision}, *world);
      for (const LoraSpec& spec : {LoraSpec{.rank = 2, .alpha = 4}, dropping(all_of(config))}) {
        TinyTraining lora({.config_json = config, .open = {.seed = 4, .lora = spec}, .precision = precision}, *world);
        EXPECT_EQ(lora.evaluate(0), base.evaluate(0)) << config << precision;
        EXPECT_EQ(lora.model->info().numel - lora.model->info().lora->numel, base.model->info().numel);
      }
    }
  }
}

TEST(Lora, TrainsAdaptersAndNothingElse) {
  const auto world = make_single_group();
  std::vector<std::string> configs = testing::tiny_mixtures();
  configs.push_back(tiny_llama_json());
  configs.push_back(tiny_gpt2_json(testing::kNoDropout));
  for (const std::string& config : configs) {
    for (const int stage : {0, 3}) {
      TinyTraining training({.config_json = config, .open = {.lora = all_of(config)}, .stage = stage}, *world);
      const auto before = weights_of(training);
      const double loss = training.evaluate(0);
      for (int i = 0; i < 20; ++i) training.train_step(0);
      EXPECT_LT(training.evaluate(0), loss - 0.05) << config;
      for (const auto& [name, bytes] : weights_of(training))
        EXPECT_EQ(bytes != before.at(name), is_of_adapter(name)) << name;
    }
  }
}

TEST(Lora, HasTheSameBitsWhateverIsRecomputed) {
  const auto world = make_single_group();
  std::vector<std::string> configs = testing::tiny_families();
  configs.push_back(tiny_gpt2_json());
  for (const std::string& config : configs) {
    for (const LoraSpec& spec : {all_of(config), dropping(all_of(config)), LoraSpec{.rank = 2, .alpha = 1}}) {
      const auto losses = [&](Recompute recompute) {
        return TinyTraining({.config_json = config, .open = {.recompute = recompute, .lora = spec}}, *world).train(3);
      };
      const std::vector<double> kept = losses(Recompute::none);
      EXPECT_EQ(losses(Recompute::selective), kept) << config;
      EXPECT_EQ(losses(Recompute::full), kept) << config;
    }
  }
}

TEST(Lora, OfAMixtureAdaptsAttentionAndDenseLayersAlone) {
  const std::vector<std::string> mixtures = testing::tiny_mixtures();
  const auto problem = [&](size_t mixture, const std::string& target) {
    return message_of(
        [&] { open_json(mixtures.at(mixture), {.lora = LoraSpec{.rank = 2, .alpha = 4, .targets = {target}}}); });
  };
  EXPECT_THAT(problem(0, kAllLinear), HasSubstr("cannot have adapters. Name others: q_proj, k_proj, v_proj, o_proj."));
  // As files call them, and as they are here.
  for (const char* target : {"w1", "experts.7.w2", "gate", "block_sparse_moe.gate", "experts.gate_up_proj"}) {
    EXPECT_THAT(problem(0, target), HasSubstr("the matrices of a mixture of experts cannot have adapters")) << target;
  }
  for (const char* target : {"gate_proj", "shared_expert.up_proj", "shared_expert_gate", "experts.0.down_proj"}) {
    EXPECT_THAT(problem(1, target), HasSubstr("the matrices of a mixture of experts cannot have adapters")) << target;
  }
  // The first layer of this one is dense.
  EXPECT_THAT(problem(2, "up_proj"), HasSubstr("up_proj means model.layers.1.mlp.experts.0.up_proj"));
  const auto model =
      open_json(mixtures[2], {.lora = LoraSpec{.rank = 2, .alpha = 4, .targets = {"o_proj", "layers.0.mlp.up_proj"}}});
  EXPECT_THAT(model->info().lora->modules,
              ::testing::ElementsAre("model.layers.0.self_attn.o_proj", "model.layers.0.mlp.up_proj",
                                     "model.layers.1.self_attn.o_proj"));
  const auto usual = open_json(mixtures[0], {.lora = LoraSpec{.rank = 2, .alpha = 4}});
  EXPECT_THAT(usual->info().lora->spec.targets, ::testing::ElementsAre("q_proj", "v_proj"));
}

// Blocks without adapters stand before and behind; nothing flows back through the first.
TEST(Lora, OfOneLayerTrainsThatLayer) {
  const auto world = make_single_group();
  const std::string config = R"({"model_type": "llama", "vocab_size": 29, "hidden_size": 12, "intermediate_size": 20,)"
                             R"( "num_hidden_layers": 3, "num_attention_heads": 2, "max_position_embeddings": 16})";
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    TinyTraining training({.config_json = config,
                           .open = {.recompute = recompute,
                                    .lora = LoraSpec{.rank = 2, .alpha = 4, .targets = {"layers.1.mlp.down_proj"}}}},
                          *world);
    EXPECT_THAT(training.model->info().lora->modules, ::testing::ElementsAre("model.layers.1.mlp.down_proj"));
    const double loss = training.evaluate(0);
    for (int i = 0; i < 20; ++i) training.train_step(0);
    EXPECT_LT(training.evaluate(0), loss);
  }
}

TEST(Lora, DropoutIsOffInEvaluationAndOnInTraining) {
  const auto world = make_single_group();
  const auto second_loss = [&](const LoraSpec& spec) {
    TinyTraining training({.config_json = tiny_llama_json(), .open = {.lora = spec}}, *world);
    training.train(2);
    EXPECT_EQ(training.evaluate(0), training.evaluate(0));
    return training.train_step(0);
  };
  EXPECT_NE(second_loss(kAll), second_loss(dropping(kAll)));
}

TEST(Lora, TheEstimateOfActivationsIsNearWhatAMicroStepHolds) {
  const std::string llama = R"({"model_type": "llama", "vocab_size": 29, "hidden_size": 48, "intermediate_size": 128,)"
                            R"( "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2,)"
                            R"( "max_position_embeddings": 64})";
  const std::string gpt2 =
      R"({"model_type": "gpt2", "vocab_size": 29, "n_embd": 48, "n_layer": 8, "n_head": 4, "n_positions": 64)" +
      testing::kNoDropout + "}";
  const std::string mixture =
      R"({"model_type": "qwen2_moe", "vocab_size": 29, "hidden_size": 48, "intermediate_size": 128,)"
      R"( "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,)"
      R"( "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64,)"
      R"( "shared_expert_intermediate_size": 96})";
  for (const std::string& config : {llama, gpt2, mixture}) {
    for (const char* precision : {"fp32", "bf16"}) {
      if (config == gpt2 && precision == std::string("bf16")) continue;  // the estimate of GPT-2 is coarse there
      const DType dtype = std::string(precision) == "fp32" ? DType::f32 : DType::bf16;
      const LoraSpec most = config == mixture
                                ? LoraSpec{.rank = 4, .alpha = 4, .targets = {"q_proj", "k_proj", "v_proj", "o_proj"}}
                                : kAll;
      for (const LoraSpec& spec : {LoraSpec{.rank = 4, .alpha = 4}, most, dropping(most)}) {
        for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
          const auto model = open_json(config, {.recompute = recompute, .lora = spec});
          const double estimated = static_cast<double>(model->activation_nbytes({2, 64, dtype}).device);
          const double measured =
              static_cast<double>(testing::measured_nbytes(config, precision, blocks_of(recompute, 8), spec));
          EXPECT_NEAR(estimated / measured, 1, 0.3) << config << precision << to_text(spec) << name_of(recompute);
        }
      }
    }
  }
}

}  // namespace shoal::models
