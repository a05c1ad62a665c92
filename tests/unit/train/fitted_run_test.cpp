#include "train/fitted_run.h"

#include <gmock/gmock.h>

namespace shoal::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

PreparedRun prepared(models::Recompute recompute, const std::vector<std::string>& overrides) {
  TrainOptions options;
  options.model = "llama-tiny";
  options.data = "synthetic";
  options.steps = 1;
  options.recompute = recompute;
  options.overrides = overrides;
  return prepare_run(options, 1);
}

TEST(FitToMemory, LeavesARunThatAsksForNothingAsItIs) {
  const PreparedRun run = prepared(models::Recompute::full, {});
  const FittedRun fitted = fit_to_memory(run, *make_single_group(), at::kCPU);
  EXPECT_EQ(fitted.config, run.config);
  EXPECT_EQ(fitted.recomputed, run.model->recomputed());
  EXPECT_EQ(fitted.choices, run.choices);
  EXPECT_EQ(fitted.activations.device, activations_of(run, fitted.recomputed, at::kCPU).device);
}

// Recompute is decided first, and placement beside the activations that it leaves; the prepared run is only read.
TEST(FitToMemory, SaysWhatItDecidedBehindTheRunsOwnChoices) {
  const PreparedRun run = prepared(models::Recompute::automatic,
                                   {"shoal.placement=auto", "shoal.host_budget=1e12", "shoal.device_budget=1"});
  const Config before = run.config;
  FittedRun fitted = fit_to_memory(run, *make_single_group(), at::kCPU);
  ASSERT_EQ(fitted.choices.size(), run.choices.size() + 2);
  fitted.choices.erase(fitted.choices.begin(), fitted.choices.end() - 2);
  EXPECT_THAT(fitted.choices, ElementsAre(HasSubstr("recompute auto: full"), HasSubstr("placement auto: ")));
  EXPECT_EQ(fitted.recomputed.full, run.model->info().layers);
  EXPECT_FALSE(fitted.config.shoal.auto_placement);
  EXPECT_EQ(run.config, before);
  EXPECT_EQ(run.model->recomputed(), models::RecomputedBlocks{});
}

}  // namespace
}  // namespace shoal::train
