#include "train/auto_placement.h"

#include <gtest/gtest.h>

#include "train/options.h"

namespace shoal::train {
namespace {

TEST(AutoPlacement, LeavesAConfigThatDoesNotAskAlone) {
  PreparedRun run;
  run.config.zero.offload_optimizer.tier = Tier::host;
  const std::unique_ptr<Group> world = make_single_group();
  const PlacedConfig placed = settle_placement(run, {}, *world, at::kCPU);
  EXPECT_EQ(placed.config, run.config);
  EXPECT_EQ(placed.words, "");
}

}  // namespace
}  // namespace shoal::train
