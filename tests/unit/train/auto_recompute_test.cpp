#include "train/auto_recompute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/blueprint.h"
#include "plan/from_config.h"
#include "plan/memory.h"
#include "train/options.h"

namespace shoal::train {
namespace {

using models::Recompute;
using models::RecomputedBlocks;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

PreparedRun run_of(Recompute recompute, size_t device_budget = 0) {
  TrainOptions options;
  options.model = "llama-33m";
  options.data = "synthetic";
  options.steps = 1;
  options.recompute = recompute;
  options.overrides = {"train_micro_batch_size_per_gpu=4", "bf16.enabled=true"};
  PreparedRun run = prepare_run(options, 1);
  run.config.shoal.device_budget = static_cast<int64_t>(device_budget);
  return run;
}

size_t activations(const PreparedRun& run, const RecomputedBlocks& blocks) {
  return run.model->activation_nbytes(micro_step_of(run, at::kCPU), blocks).device;
}

size_t states_of(const PreparedRun& run) {
  return plan_memory(layout_of(run.model->units(), run.config, 1), memory_options(run.config, false)).total();
}

TEST(AutoRecompute, KeepsWhatFitsAndSaysSo) {
  const std::unique_ptr<Group> world = make_single_group();
  const auto settled = [&](size_t budget) {
    return settle_recompute(run_of(Recompute::automatic, budget), *world, at::kCPU);
  };
  const RecomputeChoice roomy = settled(size_t{1} << 40);
  EXPECT_EQ(roomy.blocks, RecomputedBlocks{});
  EXPECT_THAT(roomy.words, HasSubstr("recompute auto: none; "));

  // Budgets that just hold a choice, and one byte less.
  const PreparedRun run = run_of(Recompute::automatic);
  for (const RecomputedBlocks& blocks : {RecomputedBlocks{0, 3}, RecomputedBlocks{0, 8}, RecomputedBlocks{5, 3}}) {
    const size_t budget = states_of(run) + activations(run, blocks);
    const RecomputeChoice choice = settled(budget);
    EXPECT_EQ(choice.blocks, blocks);
    EXPECT_THAT(choice.words, HasSubstr(models::describe(blocks, 8)));
    EXPECT_LT(activations(run, settled(budget - 1).blocks), activations(run, blocks));
  }

  const RecomputeChoice crowded = settled(1);  // the run finds out that nothing fits
  EXPECT_EQ(crowded.blocks, (RecomputedBlocks{8, 0}));
  EXPECT_THAT(crowded.words, HasSubstr("that does not fit"));
}

TEST(AutoRecompute, CountsStatesAsOnTheGpuWherePlacementIsYetToCome) {
  PreparedRun run = run_of(Recompute::automatic);
  run.config.zero.offload_optimizer.tier = Tier::host;
  const auto states = [&](bool auto_placement, at::Device device) {
    run.config.shoal.auto_placement = auto_placement;
    return choose_recompute({*run.model, micro_step_of(run, device), run.config, 1, 0}).states;
  };
  EXPECT_GT(states(true, at::kCUDA), states(false, at::kCUDA));
  EXPECT_EQ(states(true, at::kCPU), states(false, at::kCPU));
}

TEST(AutoRecompute, IsForThoseWhoAsk) {
  const std::unique_ptr<Group> world = make_single_group();
  const RecomputeChoice choice = settle_recompute(run_of(Recompute::selective, 1), *world, at::kCPU);
  EXPECT_EQ(choice.blocks, (RecomputedBlocks{0, 8}));
  EXPECT_EQ(choice.words, "");
}

}  // namespace
}  // namespace shoal::train
