#include "train/auto_placement.h"

#include <gtest/gtest.h>

#include "train/options.h"

namespace shoal::train {
namespace {

TEST(AutoPlacement, LeavesAConfigThatDoesNotAskAlone) {
  PreparedRun run;
  run.config.zero.offload_optimizer.tier = Tier::host;
  const std::unique_ptr<Group> world = make_single_group();
  EXPECT_EQ(carry_out_placement(run, *world, at::kCPU).zero.offload_optimizer.tier, Tier::host);
  EXPECT_TRUE(run.choices.empty());
}

}  // namespace
}  // namespace shoal::train
