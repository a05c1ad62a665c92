#include "models/decoder.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "training/outcome.h"
#include "unit/models/measured_nbytes.h"
#include "unit/models/tiny_families.h"
#include "unit/models/tiny_model.h"

namespace shoal::models {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::measured_nbytes;
using testing::message_of;
using testing::open_json;
using testing::tiny_families;
using testing::tiny_gpt2_json;
using testing::tiny_llama_json;
using testing::TinyTraining;

TEST(Decoder, RecomputeDoesNotChangeABitAlsoWithDropout) {
  const auto world = make_single_group();
  // Biases of Qwen2, norms of heads of Qwen3.
  std::string qwen2 = tiny_llama_json(R"(, "num_key_value_heads": 1)");
  std::string qwen3 = tiny_llama_json(R"(, "num_key_value_heads": 1, "head_dim": 6)");
  qwen2.replace(qwen2.find("llama"), 5, "qwen2");
  qwen3.replace(qwen3.find("llama"), 5, "qwen3");
  for (const std::string& config : {tiny_llama_json(), qwen2, qwen3, tiny_gpt2_json()}) {
    for (const char* precision : {"fp32", "bf16"}) {
      TinyTraining kept({.config_json = config, .precision = precision}, *world);
      const std::vector<double> losses = kept.train(4);
      for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
        TinyTraining repeated({.config_json = config, .open = {.recompute = recompute}, .precision = precision},
                              *world);
        EXPECT_EQ(repeated.train(4), losses) << config << name_of(recompute);
      }
      for (const RecomputedBlocks& blocks : {RecomputedBlocks{1, 0}, RecomputedBlocks{0, 1}, RecomputedBlocks{1, 1}}) {
        TinyTraining mixed({.config_json = config, .precision = precision}, *world);
        mixed.model->set_recomputed(blocks);
        EXPECT_EQ(mixed.train(4), losses) << config << describe(blocks, mixed.model->info().layers);
      }
    }
  }
}

TEST(Decoder, RecomputeDoesNotChangeABitInAnyFamily) {
  const auto world = make_single_group();
  for (const std::string& config : tiny_families()) {
    for (const char* precision : {"fp32", "bf16"}) {
      TinyTraining kept({.config_json = config, .precision = precision}, *world);
      const std::vector<double> losses = kept.train(3);
      EXPECT_NE(losses[2], losses[1]) << config;
      for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
        TinyTraining repeated({.config_json = config, .open = {.recompute = recompute}, .precision = precision},
                              *world);
        EXPECT_EQ(repeated.train(3), losses) << config << precision << name_of(recompute);
      }
    }
  }
}

TEST(Decoder, LogitsAreThoseOfTheLossInAnyFamily) {
  const auto world = make_single_group();
  for (const std::string& config : tiny_families()) {
    TinyTraining training({.config_json = config, .precision = "bf16"}, *world);
    const at::Tensor logits = training.logits(TinyTraining::tokens(0));
    const at::Tensor loss = at::cross_entropy_loss(logits.flatten(0, 1), TinyTraining::tokens(1).flatten());
    EXPECT_EQ(loss.item<double>(), training.evaluate(0)) << config;
  }
}

TEST(Decoder, APositionSeesNoTokenBeyondTheWindowsOfAllLayers) {
  const auto world = make_single_group();
  TinyTraining training(
      {.config_json = testing::tiny_dense_json("mistral", R"(, "sliding_window": 3, "num_key_value_heads": 1)")},
      *world);
  at::Tensor tokens = TinyTraining::tokens(1, 12);
  const at::Tensor before = training.logits(tokens);
  tokens = tokens.clone();
  tokens.select(1, 2).add_(1).remainder_(testing::kTinyVocab);
  const at::Tensor after = training.logits(tokens);
  // Two layers reach back two tokens each.
  EXPECT_TRUE(before.narrow(1, 0, 2).equal(after.narrow(1, 0, 2)));
  for (int64_t at = 2; at <= 6; ++at) EXPECT_FALSE(before.select(1, at).equal(after.select(1, at))) << at;
  EXPECT_TRUE(before.narrow(1, 7, 5).equal(after.narrow(1, 7, 5)));
}

TEST(Decoder, TheStageDoesNotChangeABit) {
  const auto world = make_single_group();
  for (const std::string& config : {tiny_llama_json(R"(, "tie_word_embeddings": true)"), tiny_gpt2_json()}) {
    std::vector<double> first;
    for (int stage = 0; stage <= 3; ++stage) {
      TinyTraining training({.config_json = config, .stage = stage}, *world);
      const std::vector<double> losses = training.train(4);
      if (stage == 0) first = losses;
      EXPECT_EQ(losses, first) << "stage " << stage;
    }
  }
}

namespace {

// The loss of one micro-step and the gradients of all parameters behind it.
struct LossAndGradients {
  double loss = 0;
  std::vector<float> gradients;
};

LossAndGradients loss_and_gradients(TinyTraining& training, const at::Tensor& loss) {
  training.engine.backward(loss);
  LossAndGradients got = {loss.item<double>(), {}};
  for (const StateRun& run : training.engine.state().owned_gradients()) {
    const size_t begin = got.gradients.size();
    got.gradients.resize(begin + static_cast<size_t>(run.numel));
    training.engine.state().read_gradient(run, got.gradients.data() + begin);
  }
  return got;
}

}  // namespace

// Rows of 9 tokens that hold documents of these lengths, the second with places left empty. The sums over tokens have
// other orders than those of the documents alone: each differs by some units in the last place of its largest term.
TEST(Decoder, APackedBatchHasTheLossAndTheGradientsOfItsDocumentsAlone) {
  at::set_num_threads(1);  // models so small are quicker without others
  const auto world = make_single_group();
  const std::vector<std::vector<int64_t>> rows = {{4, 1, 4}, {6, 3}};
  const std::string no_dropout = tiny_gpt2_json(testing::kNoDropout);
  // Windows, a cap and two bases; angles by the length, which is that of the longest document.
  const std::string gemma3 = testing::tiny_dense_json(
      "gemma3_text", R"(, "num_key_value_heads": 1, "head_dim": 4, "sliding_window": 3, "sliding_window_pattern": 2,)"
                     R"( "rope_local_base_freq": 100.0, "final_logit_softcapping": 3.0)");
  const std::string gemma2 = testing::tiny_dense_json(
      "gemma2", R"(, "num_key_value_heads": 1, "head_dim": 4, "sliding_window": 3, "attn_logit_softcapping": 0.5)");
  std::string dynamic = tiny_llama_json(R"(, "rope_scaling": {"type": "dynamic", "factor": 8.0})");
  dynamic.replace(dynamic.find("16"), 2, "6");  // positions
  const std::string longrope = testing::tiny_dense_json(
      "phi3", R"(, "pad_token_id": null, "original_max_position_embeddings": 6, "rope_scaling": {"type": "longrope",)"
              R"( "short_factor": [1, 1, 1], "long_factor": [3, 3, 3]})");
  for (const std::string& config :
       {tiny_llama_json(R"(, "num_key_value_heads": 1)"), no_dropout, gemma3, gemma2, dynamic, longrope}) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      const at::Tensor tokens = TinyTraining::tokens(0), targets = TinyTraining::tokens(1).clone();
      targets[0][2] = -100;
      targets[1].narrow(0, 6, 3).fill_(-100);  // nothing but empty places
      const double learned = targets.ge(0).sum().item<double>();
      TinyTraining packed({.config_json = config, .open = {.recompute = recompute}}, *world);
      const LossAndGradients got = loss_and_gradients(
          packed, packed.model->loss(packed.engine, tokens, targets, make_documents(rows, 9, at::kCPU)));
      LossAndGradients wanted;
      for (int64_t row = 0; row < 2; ++row) {
        int64_t begin = 0;
        for (const int64_t length : rows[static_cast<size_t>(row)]) {
          const auto part = [&, from = begin](const at::Tensor& of) {
            return of.slice(0, row, row + 1).narrow(1, from, length);
          };
          begin += length;
          const double own = part(targets).ge(0).sum().item<double>();
          if (own == 0) continue;
          TinyTraining alone({.config_json = config, .open = {.recompute = recompute}}, *world);
          const LossAndGradients of = loss_and_gradients(
              alone, alone.model->loss(alone.engine, part(tokens), part(targets)).mul(own / learned));
          wanted.loss += of.loss;
          wanted.gradients.resize(of.gradients.size());
          for (size_t i = 0; i < of.gradients.size(); ++i) wanted.gradients[i] += of.gradients[i];
        }
      }
      EXPECT_NEAR(got.loss, wanted.loss, 1e-6) << config;
      ASSERT_EQ(got.gradients.size(), wanted.gradients.size());
      ASSERT_GT(got.gradients.size(), 0u);
      double largest = 0, furthest = 0;
      for (size_t i = 0; i < wanted.gradients.size(); ++i) {
        largest = std::max(largest, static_cast<double>(std::abs(wanted.gradients[i])));
        furthest = std::max(furthest, std::abs(static_cast<double>(got.gradients[i]) - wanted.gradients[i]));
      }
      EXPECT_LT(furthest, 2e-6 * largest) << config << name_of(recompute);
      // Without documents the rows are something else.
      TinyTraining joined({.config_json = config, .open = {.recompute = recompute}}, *world);
      EXPECT_GT(std::abs(joined.model->loss(joined.engine, tokens, targets).item<double>() - got.loss), 1e-5);
    }
  }
}

// Dropout is drawn for all of a row, so only what must not change is looked at: recompute, and the end of one document
// against the begin of the next.
TEST(Decoder, PackedRowsWithDropoutRecomputeTheSameBits) {
  at::set_num_threads(1);
  const auto world = make_single_group();
  for (const char* precision : {"fp32", "bf16"}) {
    std::vector<double> expected;
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      TinyTraining training({.config_json = tiny_gpt2_json(), .open = {.recompute = recompute}, .precision = precision},
                            *world);
      std::vector<double> losses;
      for (int64_t step = 0; step < 3; ++step) {
        const at::Tensor loss =
            training.model->loss(training.engine, TinyTraining::tokens(2 * step), TinyTraining::tokens(2 * step + 1),
                                 make_documents({{5, 4}, {2, 7}}, 9, at::kCPU));
        training.engine.backward(loss);
        training.engine.step();
        losses.push_back(loss.item<double>());
      }
      if (recompute == Recompute::none) expected = losses;
      EXPECT_EQ(losses, expected) << precision << name_of(recompute);
    }
  }
}

TEST(Decoder, LogitsAreThoseOfTheLoss) {
  const auto world = make_single_group();
  TinyTraining training({.config_json = tiny_llama_json(), .precision = "bf16"}, *world);
  const at::Tensor logits = training.logits(TinyTraining::tokens(0));
  EXPECT_EQ(logits.sizes().vec(), (std::vector<int64_t>{2, 9, testing::kTinyVocab}));
  EXPECT_EQ(logits.scalar_type(), at::kFloat);
  const at::Tensor loss = at::cross_entropy_loss(logits.flatten(0, 1), TinyTraining::tokens(1).flatten());
  EXPECT_EQ(loss.item<double>(), training.evaluate(0));
}

TEST(Decoder, Fp8IsRefusedWhereItCannotRun) {
  const auto world = make_single_group();
  const auto model = open_json(tiny_llama_json());
  const Config config =
      Config::from_text(R"({"train_batch_size": 2, "bf16": {"enabled": true}, "fp8": {"enabled": true},)"
                        R"( "optimizer": {"type": "AdamW"}})");
  Engine engine(model->units(), config, *world);
  EXPECT_THAT(message_of([&] { model->loss(engine, TinyTraining::tokens(0), TinyTraining::tokens(1)); }),
              AllOf(HasSubstr("[config fp8.enabled] true"), HasSubstr("cpu")));
}

TEST(Decoder, TheEstimateKnowsThatAGpuKeepsLess) {
  const auto model = open_json(R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 2048,)"
                               R"( "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,)"
                               R"( "num_key_value_heads": 8, "max_position_embeddings": 2048})");
  const size_t on_cpu = model->activation_nbytes({8, 2048, DType::bf16}).device;
  const size_t on_gpu = model->activation_nbytes({8, 2048, DType::bf16, at::DeviceType::CUDA}).device;
  EXPECT_LT(on_gpu, on_cpu * 2 / 3);
  EXPECT_GT(on_gpu, on_cpu / 3);
}

TEST(Decoder, TheEstimateKnowsWhatRecomputeLeaves) {
  const std::string config = R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 2048,)"
                             R"( "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,)"
                             R"( "num_key_value_heads": 8, "max_position_embeddings": 2048})";
  const size_t x = size_t{8} * 2048 * 2048 * 2;
  MicroStep step = {8, 2048, DType::bf16, at::DeviceType::CUDA};
  const auto nbytes = [&](Recompute recompute) {
    return open_json(config, {.recompute = recompute})->activation_nbytes(step);
  };
  // Two norms' outputs a block.
  const size_t none = nbytes(Recompute::none).device, selective = nbytes(Recompute::selective).device;
  EXPECT_GE(none - selective, (2 * 16 - 2) * x);
  EXPECT_LE(none - selective, 2 * 16 * x);
  const ActivationNbytes full = nbytes(Recompute::full);
  EXPECT_EQ(full.host, 0u);
  step.inputs_on_host = true;
  const ActivationNbytes moved = nbytes(Recompute::full);
  EXPECT_EQ(moved.host, 16 * x);
  EXPECT_EQ(full.device - moved.device, (16 - 2) * x);
  EXPECT_EQ(nbytes(Recompute::selective).host, 0u);
  step.device = at::DeviceType::CPU;  // one memory
  EXPECT_EQ(nbytes(Recompute::full).host, 0u);
}

TEST(Decoder, TheEstimateKnowsWhatFp8Keeps) {
  const int64_t hidden = 2048, ffn = 8192, rows = int64_t{8} * 2048;
  const auto llama = [](int layers) {
    return fmt::format(
        R"({{"model_type": "llama", "vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 8192, )"
        R"("num_hidden_layers": {}, "num_attention_heads": 32, "num_key_value_heads": 8, )"
        R"("max_position_embeddings": 2048}})",
        layers);
  };
  const auto gpt2 = [](int layers) {
    return fmt::format(R"({{"model_type": "gpt2", "vocab_size": 32000, "n_embd": 2048, "n_layer": {}, "n_head": 32, )"
                       R"("n_positions": 2048{}}})",
                       layers, testing::kNoDropout);
  };
  // Bytes more than without it, a row of a block.
  const auto more = [&](const auto& config, Recompute recompute) {
    const auto nbytes = [&](int layers, bool fp8) {
      MicroStep step = {8, 2048, DType::bf16, at::DeviceType::CUDA};
      step.fp8 = fp8;
      return static_cast<int64_t>(open_json(config(layers), {.recompute = recompute})->activation_nbytes(step).device);
    };
    return (nbytes(16, true) - nbytes(8, true) - nbytes(16, false) + nbytes(8, false)) / (8 * rows);
  };
  // Norms' outputs in 8 bits instead of 16, attention's in 8 bits besides; what the activation function gave in 8 bits,
  // which Llama does not keep otherwise, and GPT-2 in 16.
  EXPECT_EQ(more(llama, Recompute::none), hidden + ffn - 2 * hidden);
  EXPECT_EQ(more(llama, Recompute::selective), hidden);
  EXPECT_EQ(more(gpt2, Recompute::none), hidden - ffn - 2 * hidden);
  EXPECT_EQ(more(gpt2, Recompute::selective), hidden);
}

TEST(Decoder, TokensThatDoNotFitAreRefused) {
  const auto world = make_single_group();
  TinyTraining training({.config_json = tiny_llama_json()}, *world);
  const auto problem = [&](const at::Tensor& tokens, const at::Tensor& targets) {
    return message_of([&] { training.model->loss(training.engine, tokens, targets); });
  };
  const at::Tensor good = TinyTraining::tokens(0);
  EXPECT_THAT(problem(TinyTraining::tokens(0, 17), TinyTraining::tokens(0, 17)),
              AllOf(HasSubstr("17"), HasSubstr("16")));
  EXPECT_THAT(problem(good.to(at::kInt), good), HasSubstr("int64"));
  EXPECT_THAT(problem(good[0], good[0]), HasSubstr("[batch, time]"));
  EXPECT_THAT(problem(good, TinyTraining::tokens(0, 8)), HasSubstr("targets"));
  EXPECT_EQ(training.train(1).size(), 1u);  // and training goes on
}

TEST(Decoder, TheEstimateOfActivationsIsNearWhatAMicroStepHolds) {
  const std::string llama = R"({"model_type": "llama", "vocab_size": 29, "hidden_size": 48, "intermediate_size": 128,)"
                            R"( "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2,)"
                            R"( "max_position_embeddings": 64})";
  const std::string gpt2 =
      R"({"model_type": "gpt2", "vocab_size": 29, "n_embd": 48, "n_layer": 8, "n_head": 4, "n_positions": 64)";
  for (const std::string& config : {llama, gpt2 + "}", gpt2 + testing::kNoDropout + "}"}) {
    for (const char* precision : {"fp32", "bf16"}) {
      double measured_before = 0, estimated_before = 0;
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        const DType dtype = std::string(precision) == "fp32" ? DType::f32 : DType::bf16;
        const double measured = static_cast<double>(measured_nbytes(config, precision, blocks_of(recompute, 8)));
        const double estimated =
            static_cast<double>(open_json(config, {.recompute = recompute})->activation_nbytes({2, 64, dtype}).device);
        EXPECT_GT(estimated, 0.6 * measured) << config << precision << name_of(recompute);
        EXPECT_LT(estimated, 1.5 * measured) << config << precision << name_of(recompute);
        if (recompute == Recompute::selective) {  // what it saves is counted more exactly than what is left
          EXPECT_NEAR(estimated_before - estimated, measured_before - measured, 0.2 * (measured_before - measured))
              << config << precision;
        }
        measured_before = measured;
        estimated_before = estimated;
      }
    }
  }
}

TEST(Decoder, TheEstimateOfMixedBlocksIsAsNear) {
  const std::string llama = R"({"model_type": "llama", "vocab_size": 29, "hidden_size": 48, "intermediate_size": 128,)"
                            R"( "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2,)"
                            R"( "max_position_embeddings": 64})";
  const auto model = open_json(llama);
  const double none = static_cast<double>(measured_nbytes(llama, "bf16", {}));
  const double planned = static_cast<double>(model->activation_nbytes({2, 64, DType::bf16}).device);
  for (const RecomputedBlocks& blocks : {RecomputedBlocks{0, 4}, RecomputedBlocks{3, 5}, RecomputedBlocks{6, 2}}) {
    const double saved = none - static_cast<double>(measured_nbytes(llama, "bf16", blocks));
    const double said = planned - static_cast<double>(model->activation_nbytes({2, 64, DType::bf16}, blocks).device);
    EXPECT_NEAR(said, saved, 0.2 * saved) << describe(blocks, 8);
  }
}

}  // namespace shoal::models
