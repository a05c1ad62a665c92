#include "models/dense/activations.h"

#include <gtest/gtest.h>

#include "unit/models/measured_nbytes.h"

namespace shoal::models {

using testing::measured_nbytes;
using testing::open_json;

namespace {

std::string shape_of(const std::string& type, const std::string& more) {
  return R"({"model_type": ")" + type +
         R"(", "vocab_size": 29, "hidden_size": 48, "intermediate_size": 128, "num_hidden_layers": 4,)"
         R"( "num_attention_heads": 4, "max_position_embeddings": 64)" +
         more + "}";
}

const std::string kGrouped = R"(, "num_key_value_heads": 2, "pad_token_id": null)";

// Families whose blocks differ in what they keep.
std::vector<std::string> shapes() {
  return {shape_of("gemma", kGrouped + R"(, "head_dim": 16)"),
          shape_of("gemma2", kGrouped + R"(, "head_dim": 16, "sliding_window": 16)"),
          shape_of("gemma3_text", kGrouped + R"(, "head_dim": 16)"),
          shape_of("phi3", kGrouped),
          shape_of("olmo2", kGrouped),
          shape_of("granite", kGrouped),
          shape_of("gpt_neox", R"(, "rotary_pct": 0.5)"),
          shape_of("opt", R"(, "ffn_dim": 128, "dropout": 0)"),
          shape_of("falcon", R"(, "ffn_hidden_size": 128)")};
}

}  // namespace

TEST(DenseBlockNbytes, AreNearWhatAMicroStepHolds) {
  for (const std::string& config : shapes()) {
    for (const char* precision : {"fp32", "bf16"}) {
      const DType dtype = std::string(precision) == "fp32" ? DType::f32 : DType::bf16;
      const auto estimated = [&](Recompute recompute) {
        return static_cast<double>(
            open_json(config, {.recompute = recompute})->activation_nbytes({2, 64, dtype}).device);
      };
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        const double measured = static_cast<double>(measured_nbytes(config, precision, blocks_of(recompute, 4)));
        EXPECT_NEAR(estimated(recompute) / measured, 1, 0.3) << config << precision << name_of(recompute);
      }
    }
  }
}

// Rows of a token's experts are as many whatever routers choose, and the plan knows what they keep.
TEST(DenseBlockNbytes, OfMixturesAreWithinFivePercent) {
  const std::string wide = R"(, "num_key_value_heads": 2, "num_experts_per_tok": 4, "moe_intermediate_size": 64)";
  for (const std::string& config :
       {shape_of("mixtral", kGrouped + R"(, "num_experts_per_tok": 2)"),
        shape_of("qwen3_moe", wide + R"(, "num_experts": 16, "norm_topk_prob": true)"),
        shape_of("qwen2_moe", wide + R"(, "num_experts": 16, "shared_expert_intermediate_size": 96)"),
        shape_of("qwen3_moe", wide + R"(, "num_experts": 16, "decoder_sparse_step": 2)")}) {
    for (const char* precision : {"fp32", "bf16"}) {
      const DType dtype = std::string(precision) == "fp32" ? DType::f32 : DType::bf16;
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        const double measured = static_cast<double>(measured_nbytes(config, precision, blocks_of(recompute, 4)));
        const double planned =
            static_cast<double>(open_json(config, {.recompute = recompute})->activation_nbytes({2, 64, dtype}).device);
        EXPECT_NEAR(planned / measured, 1, 0.05) << config << precision << name_of(recompute);
      }
    }
  }
}

TEST(DenseBlockNbytes, OfCappedScoresAreThoseOfAChunk) {
  const auto in_flight = [](int64_t time) {
    DenseConfig config;
    config.hidden = config.ffn = 64;
    config.heads = config.kv_heads = 16;
    config.head_dim = 4;
    config.attention_softcap = 50;
    config.each_layer.resize(1);
    return dense_block_nbytes(config, {1, time, DType::bf16, at::DeviceType::CUDA}).in_flight;
  };
  EXPECT_LT(in_flight(32768), 4 * in_flight(8192));  // not by the square
}

TEST(DenseBlockNbytes, OfMixedLayersAreThoseOfTheLargestChunk) {
  const auto in_flight = [](const std::vector<int64_t>& windows) {
    DenseConfig config;
    config.hidden = config.ffn = 64;
    config.heads = config.kv_heads = 16;
    config.head_dim = 4;
    for (const int64_t window : windows) config.each_layer.push_back({.window = window});
    return dense_block_nbytes(config, {1, 8192, DType::bf16, at::DeviceType::CUDA}).in_flight;
  };
  ASSERT_GT(in_flight({0, 2048}), 2 * in_flight({0}));
  // Layers that see all go through the library's attention.
  for (const int64_t window : {16, 2048}) EXPECT_EQ(in_flight({0, window}), in_flight({window})) << window;
  EXPECT_GT(in_flight({2048}), in_flight({16}));
  EXPECT_EQ(in_flight({16, 2048}), in_flight({2048}));
  EXPECT_EQ(in_flight({2048, 16}), in_flight({2048}));
  EXPECT_EQ(in_flight({8192}), in_flight({0}));
}

TEST(DenseBlockNbytes, CountTheWorkspaceOfDeterministicAttentionWhereItIsTheMost) {
  const auto more = [](int64_t ffn, int64_t time, int64_t window = 0) {
    DenseConfig config;
    config.hidden = 1024;
    config.ffn = ffn;
    config.heads = config.kv_heads = 16;
    config.head_dim = 64;
    config.each_layer.push_back({.window = window});
    MicroStep step = {8, time, DType::bf16, at::DeviceType::CUDA};
    const size_t without = dense_block_nbytes(config, step).in_flight;
    step.deterministic = true;
    return dense_block_nbytes(config, step).in_flight - without;
  };
  EXPECT_GT(more(1024, 2048), size_t{100} << 20);
  EXPECT_EQ(more(4096, 2048), 0u);      // the feed-forward part holds more
  EXPECT_EQ(more(1024, 2000), 0u);      // not by cuDNN
  EXPECT_EQ(more(1024, 2048, 64), 0u);  // not by the library
}

}  // namespace shoal::models
