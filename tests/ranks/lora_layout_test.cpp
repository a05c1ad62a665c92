// LoRA: the same bits at every stage, number of ranks and tier; what the plan counts is what the engine holds.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/blueprint.h"
#include "models/open_model.h"
#include "plan/stage_plans.h"
#include "training/outcome.h"
#include "unit/comm/rank_threads.h"
#include "unit/models/tiny_families.h"
#include "unit/models/tiny_model.h"

namespace shoal {

using testing::run_ranks;
using testing::TinyTraining;

namespace {

const models::LoraSpec kSpec = {.rank = 2, .alpha = 4, .targets = {models::kAllLinear}};

struct LoraRun {
  std::string config = testing::tiny_llama_json(R"(, "num_key_value_heads": 1)");
  models::Recompute recompute = models::Recompute::none;
  models::LoraSpec spec = kSpec;
  int stage = 0;
  std::vector<std::string> settings = {};
};

Config config_of(const LoraRun& run, int world) {
  std::vector<std::string> settings = {"train_batch_size=12",
                                       "train_micro_batch_size_per_gpu=1",
                                       "optimizer.type=AdamW",
                                       "optimizer.params.lr=0.01",
                                       "shoal.reproducible=true",
                                       "zero_optimization.stage3_param_persistence_threshold=0",
                                       fmt::format("zero_optimization.stage={}", run.stage)};
  settings.insert(settings.end(), run.settings.begin(), run.settings.end());
  return Config::from_text("{}", {.world_size = world}, "config", settings);
}

// Losses of two steps of 12 micro-batches in their order, and the adapters after them, on rank 0.
struct LoraResult {
  std::vector<double> losses;
  std::vector<std::string> adapters;
  bool operator==(const LoraResult&) const = default;
};

LoraResult train_lora(const LoraRun& run, int world) {
  LoraResult result;
  result.losses.resize(24);
  run_ranks(world, [&](Group& group) {
    const auto model = testing::open_json(run.config, {.seed = 2, .recompute = run.recompute, .lora = run.spec});
    Engine engine(model->units(), config_of(run, world), group, {.seed = 2});
    const int64_t micro_steps = 12 / world;
    for (int64_t step = 0; step < 2; ++step) {
      for (int64_t micro_step = 0; micro_step < micro_steps; ++micro_step) {
        const int64_t leaf = step * 12 + micro_step * world + group.rank();
        const at::Tensor tokens = TinyTraining::tokens(leaf).narrow(0, 0, 1);
        const at::Tensor loss = model->loss(engine, tokens, tokens);
        result.losses[static_cast<size_t>(leaf)] = loss.item<double>();
        engine.backward(loss);
        engine.step();
      }
    }
    for (const Unit& unit : model->units()) {
      for (const Parameter& param : unit.params) {
        if (!param.tensor.requires_grad()) continue;
        engine.with_gathered({param.name}, Access::read, [&] {
          if (group.rank() == 0) result.adapters.push_back(testing::bytes_of(param.tensor));
        });
      }
    }
  });
  return result;
}

}  // namespace

TEST(Lora, HasTheSameBitsAtEveryStageAndNumberOfRanks) {
  for (const char* precision : {"fp32", "bf16.enabled=true", "fp16.enabled=true"}) {
    LoraRun run;
    if (precision != std::string("fp32")) run.settings = {precision};
    const LoraResult expected = train_lora(run, 1);
    for (const int world : {1, 2, 3}) {
      for (run.stage = 0; run.stage <= 3; ++run.stage) {
        EXPECT_EQ(train_lora(run, world), expected) << precision << " stage " << run.stage << " of " << world;
      }
    }
  }
}

TEST(Lora, HasTheSameBitsWithRecomputeOffloadAndGpt2) {
  for (const std::string& config : {LoraRun().config, testing::tiny_gpt2_json(testing::kNoDropout)}) {
    LoraRun run = {.config = config};
    const LoraResult expected = train_lora(run, 1);
    run.stage = 3;
    for (const models::Recompute recompute : {models::Recompute::selective, models::Recompute::full}) {
      run.recompute = recompute;
      EXPECT_EQ(train_lora(run, 2), expected) << name_of(recompute);
    }
    run.settings = {R"(zero_optimization.offload_param={"device": "cpu"})",
                    R"(zero_optimization.offload_optimizer={"device": "cpu"})"};
    EXPECT_EQ(train_lora(run, 2), expected);
  }
}

// Of a mixture of experts attention is adapted, and what the auxiliary loss asks of routers goes into that.
TEST(Lora, HasTheSameBitsOnAMixtureOfExperts) {
  for (const size_t mixture : {0u, 1u, 2u}) {
    LoraRun run;
    run.config = testing::tiny_mixtures().at(mixture);
    run.spec.targets = {"q_proj", "k_proj", "v_proj", "o_proj"};
    const LoraResult expected = train_lora(run, 1);
    for (const int world : {1, 2, 3}) {
      run.stage = world;
      run.recompute = static_cast<models::Recompute>(world - 1);
      EXPECT_EQ(train_lora(run, world), expected) << run.config << " stage " << run.stage << " of " << world;
    }
  }
}

// The masks of dropout are the micro-batch's, whoever computes it.
TEST(Lora, HasTheSameDropoutAtEveryNumberOfRanks) {
  LoraRun run;
  run.spec.dropout = 0.3;
  run.settings = {"shoal.leaf_seed=5"};
  const LoraResult expected = train_lora(run, 1);
  for (const int world : {2, 3}) {
    run.stage = world;
    run.recompute = world == 2 ? models::Recompute::full : models::Recompute::none;
    EXPECT_EQ(train_lora(run, world), expected) << world;
  }
}

TEST(Lora, ThePlanCountsWhatTheEngineHolds) {
  const auto open = [] { return models::open_model("llama-tiny", {.lora = models::LoraSpec{.rank = 3, .alpha = 1}}); };
  const auto model = open();
  const models::LoraInfo& lora = *model->info().lora;
  for (const char* precision : {"fp32", "bf16.enabled=true", "fp16.enabled=true"}) {
    for (const int world : {1, 2, 3}) {
      for (int stage = 0; stage <= 3; ++stage) {
        std::vector<std::string> settings = {"train_micro_batch_size_per_gpu=1", "optimizer.type=AdamW",
                                             "zero_optimization.stage3_param_persistence_threshold=1000",
                                             fmt::format("zero_optimization.stage={}", stage)};
        if (precision != std::string("fp32")) settings.emplace_back(precision);
        const Config config = Config::from_text("{}", {.world_size = world}, "config", settings);
        PlanSubject subject;
        subject.units = make_blueprint(model->units(), config, 1).specs;
        EXPECT_EQ(subject.numel(), model->info().numel);
        EXPECT_EQ(subject.trained_numel(), lora.numel);
        const StagePlan planned = plan_stage(subject, config, world, false);
        EXPECT_EQ(planned.frozen_weights + planned.trained_weights, planned.memory.weights);
        EXPECT_GT(planned.frozen_weights, 10 * planned.trained_weights);
        run_ranks(world, [&](Group& group) {
          const auto own = open();
          const Engine engine(own->units(), config, group);
          const MemoryPlan held = engine.meters().memory().held;
          EXPECT_EQ(held.weights, planned.memory.weights) << precision << " stage " << stage << " of " << world;
          EXPECT_EQ(held.gradients, planned.memory.gradients) << precision << " stage " << stage << " of " << world;
          EXPECT_EQ(held.states, planned.memory.states) << precision << " stage " << stage << " of " << world;
          EXPECT_EQ(held.reduce_slots, planned.memory.reduce_slots) << precision << " stage " << stage;
          group.barrier({"end", ""}).wait();
        });
      }
    }
  }
}

}  // namespace shoal
