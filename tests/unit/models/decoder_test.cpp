#include "models/decoder.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "training/outcome.h"
#include "unit/models/counting_allocator.h"
#include "unit/models/tiny_model.h"

namespace shoal::models {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;
using testing::open_json;
using testing::tiny_gpt2_json;
using testing::tiny_llama_json;
using testing::TinyTraining;

TEST(Decoder, RecomputeDoesNotChangeABitAlsoWithDropout) {
  const auto world = make_single_group();
  for (const std::string& config : {tiny_llama_json(), tiny_gpt2_json()}) {
    for (const char* precision : {"fp32", "bf16"}) {
      TinyTraining kept({.config_json = config, .precision = precision}, *world);
      TinyTraining repeated({.config_json = config, .open = {.recompute = Recompute::full}, .precision = precision},
                            *world);
      EXPECT_EQ(kept.train(4), repeated.train(4)) << config;
    }
  }
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
  const size_t on_cpu = model->activation_nbytes(8, 2048, DType::bf16);
  const size_t on_gpu = model->activation_nbytes(8, 2048, DType::bf16, at::DeviceType::CUDA);
  EXPECT_LT(on_gpu, on_cpu * 2 / 3);
  EXPECT_GT(on_gpu, on_cpu / 3);
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

namespace {

// Bytes that tensors hold at the peak of a micro-step, beyond what they hold between steps.
int64_t measured_nbytes(const std::string& config, const std::string& precision, Recompute recompute) {
  const auto world = make_single_group();
  TinyTraining training({.config_json = config, .open = {.recompute = recompute}, .precision = precision}, *world);
  const at::Tensor tokens = TinyTraining::tokens(0, 64);
  const auto run = [&] { training.engine.backward(training.model->loss(training.engine, tokens, tokens)); };
  run();
  training.engine.step();
  testing::CountingAllocator counted;
  run();
  training.engine.step();
  return counted.peak();
}

}  // namespace

TEST(Decoder, TheEstimateOfActivationsIsNearWhatAMicroStepHolds) {
  const std::string llama = R"({"model_type": "llama", "vocab_size": 29, "hidden_size": 48, "intermediate_size": 128,)"
                            R"( "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2,)"
                            R"( "max_position_embeddings": 64})";
  const std::string gpt2 =
      R"({"model_type": "gpt2", "vocab_size": 29, "n_embd": 48, "n_layer": 8, "n_head": 4, "n_positions": 64)";
  for (const std::string& config : {llama, gpt2 + "}", gpt2 + testing::kNoDropout + "}"}) {
    for (const char* precision : {"fp32", "bf16"}) {
      for (const Recompute recompute : {Recompute::none, Recompute::full}) {
        const DType dtype = std::string(precision) == "fp32" ? DType::f32 : DType::bf16;
        const double measured = static_cast<double>(measured_nbytes(config, precision, recompute));
        const double estimated =
            static_cast<double>(open_json(config, {.recompute = recompute})->activation_nbytes(2, 64, dtype));
        EXPECT_GT(estimated, 0.6 * measured) << config << precision;
        EXPECT_LT(estimated, 1.5 * measured) << config << precision;
      }
    }
  }
}

}  // namespace shoal::models
