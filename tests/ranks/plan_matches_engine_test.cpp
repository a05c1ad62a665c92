// What `shoal plan` counts for a model is what the engine then holds, to the byte.
#include <gtest/gtest.h>

#include <thread>

#include "engine/blueprint.h"
#include "models/open_model.h"
#include "plan/stage_plans.h"
#include "shoal/engine.h"
#include "temp_folder.h"

namespace shoal {
namespace {

Config config_of(int stage, Precision precision, int world, const std::vector<std::string>& more = {}) {
  const std::string flag = precision == Precision::bf16 ? "bf16" : "fp16";
  std::vector<std::string> settings = {"train_micro_batch_size_per_gpu=1", "optimizer.type=AdamW",
                                       "zero_optimization.stage=" + std::to_string(stage),
                                       "zero_optimization.stage3_param_persistence_threshold=1000"};
  if (precision != Precision::fp32) settings.push_back(flag + ".enabled=true");
  settings.insert(settings.end(), more.begin(), more.end());
  return Config::from_text("{}", {.world_size = world}, "config", settings);
}

std::vector<MemoryPlan> held_by_engines(const Config& config, int world) {
  std::vector<MemoryPlan> held(static_cast<size_t>(world));
  auto groups = make_thread_groups(world);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world; ++rank) {
    ranks.emplace_back([&, rank] {
      Group& group = *groups[static_cast<size_t>(rank)];
      const auto model = models::open_model("llama-tiny");  // each rank has its own, as processes do
      const Engine engine(model->units(), config, group);
      held[static_cast<size_t>(rank)] = engine.meters().memory().held;
      group.barrier({"end", ""}).wait();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return held;
}

TEST(Plan, EqualsWhatTheEngineHoldsAtEveryStageWorldAndPrecision) {
  const auto model = models::open_model("llama-tiny");
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    for (const int world : {1, 2, 3, 4}) {
      const Config config = config_of(3, precision, world);
      PlanSubject subject;
      subject.units = make_blueprint(model->units(), config, 1).specs;
      EXPECT_EQ(subject.numel(), model->info().numel);
      const auto plans = plan_stages(subject, config, world);
      for (int stage = 0; stage < kStages; ++stage) {
        const MemoryPlan& planned = plans[static_cast<size_t>(stage)].memory;
        for (const MemoryPlan& held : held_by_engines(config_of(stage, precision, world), world)) {
          EXPECT_EQ(held.weights, planned.weights) << "stage " << stage << " of " << world;
          EXPECT_EQ(held.gradients, planned.gradients) << "stage " << stage << " of " << world;
          EXPECT_EQ(held.states, planned.states) << "stage " << stage << " of " << world;
          EXPECT_EQ(held.reduce_slots, planned.reduce_slots) << "stage " << stage << " of " << world;
        }
      }
    }
  }
}

TEST(Plan, EqualsWhatTheEngineHoldsOfWeightsOnDisk) {
  const auto model = models::open_model("llama-tiny");
  const testing::TempFolder folder;
  for (const int world : {1, 2, 3}) {
    for (const std::string in_cpu : {"0", "200000"}) {
      const Config config = config_of(3, Precision::bf16, world,
                                      {"zero_optimization.offload_param={\"device\": \"nvme\", \"nvme_path\": \"" +
                                       folder.path() + "\", \"buffer_count\": 2, \"max_in_cpu\": " + in_cpu + "}"});
      PlanSubject subject;
      subject.units = make_blueprint(model->units(), config, 1).specs;
      const MemoryPlan planned = plan_stages(subject, config, world)[3].memory;
      EXPECT_GT(planned.disk_weights, 0u);
      EXPECT_EQ(planned.host_weights > 0, in_cpu != "0");
      for (const MemoryPlan& held : held_by_engines(config, world)) {
        EXPECT_EQ(held.weights, planned.weights) << world << " ranks";
        EXPECT_EQ(held.host_weights, planned.host_weights) << world << " ranks";
        EXPECT_EQ(held.disk_weights, planned.disk_weights) << world << " ranks";
        EXPECT_EQ(held.disk_buffers, planned.disk_buffers) << world << " ranks";
      }
    }
  }
}

TEST(Plan, EqualsWhatTheEngineHoldsOnAMeshOfGroups) {
  const auto model = models::open_model("llama-tiny");
  for (const std::vector<std::string>& groups :
       {std::vector<std::string>{"zero_optimization.mics_shard_size=2"},
        {"zero_optimization.mics_shard_size=1"},
        {"zero_optimization.zero_hpz_partition_size=2"},
        {"zero_optimization.mics_shard_size=2", "shoal.fold_group=2", "gradient_accumulation_steps=2"}}) {
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      for (const int stage : {1, 2, 3}) {
        if (stage < 3 && groups[0].find("hpz") != std::string::npos) continue;
        SCOPED_TRACE(groups[0] + ", stage " + std::to_string(stage));
        const Config config = config_of(stage, precision, 4, groups);
        PlanSubject subject;
        subject.units = make_blueprint(model->units(), config, 1).specs;
        const MemoryPlan planned = plan_stage(subject, config, 4, false).memory;
        for (const MemoryPlan& held : held_by_engines(config, 4)) {
          EXPECT_EQ(held.weights, planned.weights);
          EXPECT_EQ(held.second_weights, planned.second_weights);
          EXPECT_EQ(held.gradients, planned.gradients);
          EXPECT_EQ(held.states, planned.states);
          EXPECT_EQ(held.reduce_slots, planned.reduce_slots);
        }
      }
    }
  }
}

}  // namespace
}  // namespace shoal
