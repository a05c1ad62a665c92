#include "train/auto_placement.h"

#include <gtest/gtest.h>

#include "train/options.h"

namespace shoal::train {
namespace {

TEST(AutoPlacement, WithoutAGpuNothingIsMoved) {
  PreparedRun run;
  run.config.shoal.auto_placement = true;
  const std::unique_ptr<Group> world = make_single_group();
  const Config& config = carry_out_placement(run, *world, at::kCPU);
  EXPECT_FALSE(config.shoal.auto_placement);
  EXPECT_EQ(config.zero, ZeroConfig{});
  ASSERT_EQ(run.choices.size(), 1u);
}

TEST(AutoPlacement, LeavesAConfigThatDoesNotAskAlone) {
  PreparedRun run;
  run.config.zero.offload_optimizer.tier = Tier::host;
  const std::unique_ptr<Group> world = make_single_group();
  EXPECT_EQ(carry_out_placement(run, *world, at::kCPU).zero.offload_optimizer.tier, Tier::host);
  EXPECT_TRUE(run.choices.empty());
}

}  // namespace
}  // namespace shoal::train
