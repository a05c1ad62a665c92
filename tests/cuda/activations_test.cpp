// What a GPU keeps of activations: every way of recomputing gives the same bits, takes less memory by what the plan
// says, and inputs on the host leave two of themselves on the device.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/randint.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>

#include "base/text.h"
#include "cuda/torch_gpu.h"
#include "models/open_model.h"
#include "models/ops/cuda/fp8.h"
#include "training/matrix_run.h"
#include "unit/models/tiny_model.h"

namespace shoal::testing {
namespace {

using models::Recompute;

constexpr int64_t kBatch = 4, kTime = 512, kHidden = 256, kLayers = 10;
constexpr size_t kInput = size_t{kBatch} * kTime * kHidden * 2;  // bytes, in bf16

std::string llama_json() {
  return R"({"model_type": "llama", "vocab_size": 512, "hidden_size": 256, "intermediate_size": 512,)"
         R"( "num_hidden_layers": 10, "num_attention_heads": 4, "num_key_value_heads": 2,)"
         R"( "max_position_embeddings": 512})";
}
std::string gpt2_json() {
  return R"({"model_type": "gpt2", "vocab_size": 512, "n_embd": 256, "n_layer": 10, "n_head": 4, "n_positions": 512)" +
         kNoDropout + "}";
}

// Gate and up are one matrix, and so are q, k and v.
std::string phi3_json() {
  return R"({"model_type": "phi3", "vocab_size": 512, "hidden_size": 256, "intermediate_size": 512,)"
         R"( "num_hidden_layers": 10, "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": null,)"
         R"( "max_position_embeddings": 512})";
}

struct ActivationRun {
  std::string config_json;
  Recompute recompute = Recompute::none;
  std::optional<models::RecomputedBlocks> blocks = {};  // instead
  int stage = 0;
  bool fp8 = false;
  bool inputs_on_host = false;
  int accumulation = 1;
  int64_t time = kTime;
};

struct ActivationResult {
  std::vector<double> losses;
  std::vector<double> norms;
  size_t peak = 0;  // bytes of torch's allocator in the last step, beyond what it held before
  models::ActivationNbytes planned;
  size_t states = 0, planned_states = 0;  // all of the model's, on the GPU
  size_t host = 0;
};

ActivationResult result_of(const ActivationRun& run) {
  const auto world = make_single_group();
  const auto model = open_json(run.config_json, {.recompute = run.recompute});
  if (run.blocks) model->set_recomputed(*run.blocks);
  Config config = Config::from_text(
      fmt::format(R"({{"train_micro_batch_size_per_gpu": {}, "gradient_accumulation_steps": {}, "bf16": {{"enabled": )"
                  R"(true}}, "fp8": {{"enabled": {}}}, "activation_checkpointing": {{"cpu_checkpointing": {}}}, )"
                  R"("optimizer": {{"type": "AdamW", "params": {{"lr": 0.003}}}}, "zero_optimization": {{"stage": {}, )"
                  R"("stage3_param_persistence_threshold": 0}}}})",
                  kBatch, run.accumulation, run.fp8, run.inputs_on_host, run.stage));
  EngineOptions options;
  options.device = gpu();
  Engine engine(model->units(), config, *world, options);
  ActivationResult result;
  const auto held = [] {
    return at::accelerator::getDeviceStats(gpu().index())
        .allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  };
  for (int step = 0; step < 4; ++step) {
    at::accelerator::resetPeakStats(gpu().index());
    const auto before = static_cast<size_t>(held().current);
    for (int micro = 0; micro < run.accumulation; ++micro) {
      at::Generator random = at::detail::createCPUGenerator(static_cast<uint64_t>(10 * step + micro));
      const at::Tensor tokens = at::randint(0, 512, {kBatch, run.time}, random, at::kLong).to(gpu());
      const at::Tensor loss = model->loss(engine, tokens, tokens.roll(1, 1));
      engine.backward(loss);
      result.losses.push_back(loss.item<double>());
    }
    result.norms.push_back(engine.step().grad_norm);
    result.peak = static_cast<size_t>(held().peak) - before;
  }
  models::MicroStep planned = {kBatch, run.time, DType::bf16, at::DeviceType::CUDA, run.inputs_on_host};
  planned.deterministic = true;  // as gpu() opens it
  result.planned = model->activation_nbytes(planned);
  const MemoryReport memory = engine.meters().memory();
  result.states = memory.held.total();
  result.planned_states = memory.planned.total();
  result.host = memory.host_activations;
  return result;
}

TEST(GpuActivations, EveryRecomputeGivesTheSameBitsAtEveryStage) {
  SHOAL_NEEDS_GPU();
  for (const std::string& config : {llama_json(), gpt2_json()}) {
    const ActivationResult none = result_of({.config_json = config});
    EXPECT_NE(none.losses.back(), none.losses.front()) << "nothing was trained";
    for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
      for (int stage = 0; stage <= 3; ++stage) {
        const ActivationResult got = result_of({.config_json = config, .recompute = recompute, .stage = stage});
        EXPECT_EQ(got.losses, none.losses) << models::name_of(recompute) << " stage " << stage;
        EXPECT_EQ(got.norms, none.norms) << models::name_of(recompute) << " stage " << stage;
      }
    }
    const ActivationResult mixed = result_of({.config_json = config, .blocks = models::RecomputedBlocks{1, 1}});
    EXPECT_EQ(mixed.losses, none.losses);
    EXPECT_EQ(mixed.norms, none.norms);
  }
}

TEST(GpuActivations, SelectiveRecomputeGivesTheSameBitsInFp8AndTakesLess) {
  SHOAL_NEEDS_GPU();
  if (!models::ops::cuda::multiplies_fp8()) GTEST_SKIP() << "this GPU does not multiply fp8";
  for (const std::string& config : {llama_json(), gpt2_json(), phi3_json()}) {
    const ActivationResult none = result_of({.config_json = config, .fp8 = true});
    const ActivationResult selective =
        result_of({.config_json = config, .recompute = Recompute::selective, .fp8 = true});
    EXPECT_EQ(selective.losses, none.losses);
    EXPECT_EQ(selective.norms, none.norms);
    // In 8 bits: two norms' outputs and what the activation function made.
    fmt::print("fp8: none {}, selective {}\n", format_nbytes(none.peak), format_nbytes(selective.peak));
    EXPECT_LT(selective.peak + (kLayers - 2) * kInput, none.peak);
  }
}

TEST(GpuActivations, TakeWhatThePlanSays) {
  SHOAL_NEEDS_GPU();
  for (const std::string& config : {llama_json(), gpt2_json()}) {
    std::vector<ActivationResult> results;
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      results.push_back(result_of({.config_json = config, .recompute = recompute}));
      const ActivationResult& got = results.back();
      fmt::print("{}: torch's allocator took {}, planned {}\n", models::name_of(recompute), format_nbytes(got.peak),
                 format_nbytes(got.planned.device));
      EXPECT_GT(static_cast<double>(got.planned.device), 0.6 * static_cast<double>(got.peak));
      EXPECT_LT(static_cast<double>(got.planned.device), 1.5 * static_cast<double>(got.peak));
    }
    const auto saved = static_cast<double>(results[0].peak - results[1].peak);
    const auto planned = static_cast<double>(results[0].planned.device - results[1].planned.device);
    EXPECT_NEAR(saved, planned, 0.2 * planned);
  }
}

// At shapes that people train, of a model with fewer layers. Model states take what they are planned to take to the
// byte (engine_test.cpp), so a whole step is nearer still.
TEST(GpuActivations, PeakWithinFivePercentOfThePlan) {
  SHOAL_NEEDS_GPU();
  const std::string config =
      R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 5632,)"
      R"( "num_hidden_layers": 6, "num_attention_heads": 32, "num_key_value_heads": 4,)"
      R"( "max_position_embeddings": 2048})";
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    const ActivationResult got = result_of({.config_json = config, .recompute = recompute, .time = 2048});
    fmt::print("{}: states {}, activations {} of torch's allocator, planned {}\n", models::name_of(recompute),
               format_nbytes(got.states), format_nbytes(got.peak), format_nbytes(got.planned.device));
    EXPECT_EQ(got.states, got.planned_states);
    EXPECT_NEAR(static_cast<double>(got.planned.device) / static_cast<double>(got.peak), 1, 0.05)
        << models::name_of(recompute);
  }
}

TEST(GpuActivations, InputsOnTheHostGiveTheSameBitsAndLeaveTwoOnTheDevice) {
  SHOAL_NEEDS_GPU();
  for (const int accumulation : {1, 2}) {
    for (const int stage : {0, 3}) {
      ActivationRun run = {.config_json = llama_json(), .recompute = Recompute::full, .stage = stage};
      run.accumulation = accumulation;
      const ActivationResult kept = result_of(run);
      run.inputs_on_host = true;
      const ActivationResult moved = result_of(run);
      EXPECT_EQ(moved.losses, kept.losses) << "stage " << stage;
      EXPECT_EQ(moved.norms, kept.norms) << "stage " << stage;
      EXPECT_EQ(kept.host, 0u);
      EXPECT_EQ(moved.host, kLayers * kInput);
      EXPECT_EQ(moved.host, moved.planned.host);
      fmt::print("stage {}: {} with inputs on the device, {} without, {} each\n", stage, format_nbytes(kept.peak),
                 format_nbytes(moved.peak), format_nbytes(kInput));
      EXPECT_GE(kept.peak - moved.peak, (kLayers - 3) * kInput);
      EXPECT_LE(kept.peak - moved.peak, kLayers * kInput);
    }
  }
}

// Dropout, units used twice and left out, recomputed one by one; ranks that share the GPU.
TEST(GpuActivations, InputsOnTheHostGiveTheBitsOfTheMatrixModel) {
  SHOAL_NEEDS_GPU();
  for (const int world : {1, 2}) {
    for (const int stage : {0, 2, 3}) {
      RunOptions options;
      options.device = gpu();
      options.precision = Precision::bf16;
      options.stage = stage;
      options.steps = 8;
      options.accumulation = 2;
      options.recompute = true;
      const std::vector<RunResult> kept = train_on_threads(world, options);
      options.inputs_on_host = true;
      const std::vector<RunResult> moved = train_on_threads(world, options);
      EXPECT_TRUE(moved.back() == kept.back()) << fmt::format("world {} stage {}", world, stage);
      EXPECT_GT(moved.back().memory.host_activations, 0u);
    }
  }
}

}  // namespace
}  // namespace shoal::testing
