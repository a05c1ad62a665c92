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
  run.choices.clear();
  return run;
}

size_t activations(const PreparedRun& run, const RecomputedBlocks& blocks) {
  return run.model->activation_nbytes(micro_step_of(run, at::kCPU), blocks).device;
}

size_t states_of(const PreparedRun& run) {
  const auto specs = make_blueprint(run.model->units(), run.config, 1).specs;
  return plan_memory(lay_out(specs, layout_options(run.config, 1)), memory_options(run.config, false)).total();
}

TEST(AutoRecompute, KeepsWhatFitsAndSaysSo) {
  const std::unique_ptr<Group> world = make_single_group();
  PreparedRun roomy = run_of(Recompute::automatic, size_t{1} << 40);
  carry_out_recompute(roomy, *world, at::kCPU);
  EXPECT_EQ(roomy.model->recomputed(), RecomputedBlocks{});
  EXPECT_THAT(roomy.choices, ElementsAre(HasSubstr("recompute auto: none; ")));

  // Budgets that just hold a choice, and one byte less.
  const size_t states = states_of(roomy);
  for (const RecomputedBlocks& blocks : {RecomputedBlocks{0, 3}, RecomputedBlocks{0, 8}, RecomputedBlocks{5, 3}}) {
    const size_t budget = states + activations(roomy, blocks);
    PreparedRun run = run_of(Recompute::automatic, budget);
    carry_out_recompute(run, *world, at::kCPU);
    EXPECT_EQ(run.model->recomputed(), blocks);
    EXPECT_THAT(run.choices, ElementsAre(HasSubstr(models::describe(blocks, 8))));
    PreparedRun tighter = run_of(Recompute::automatic, budget - 1);
    carry_out_recompute(tighter, *world, at::kCPU);
    EXPECT_LT(activations(tighter, tighter.model->recomputed()), activations(roomy, blocks));
  }

  PreparedRun crowded = run_of(Recompute::automatic, 1);  // the run finds out that nothing fits
  carry_out_recompute(crowded, *world, at::kCPU);
  EXPECT_EQ(crowded.model->recomputed(), (RecomputedBlocks{8, 0}));
  EXPECT_THAT(crowded.choices, ElementsAre(HasSubstr("that does not fit")));
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
  PreparedRun run = run_of(Recompute::selective, 1);
  carry_out_recompute(run, *world, at::kCPU);
  EXPECT_EQ(run.model->recomputed(), (RecomputedBlocks{0, 8}));
  EXPECT_TRUE(run.choices.empty());
}

}  // namespace
}  // namespace shoal::train
