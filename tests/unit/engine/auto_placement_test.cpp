#include "engine/auto_placement.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "message_of.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

// Of 1 Mi parameters in fp32: 4 MiB of weights, as much of gradients, 8 MiB of states.
std::vector<Unit> model() { return {{.name = "u", .params = {{"p", at::zeros({1 << 20}).requires_grad_()}}}}; }

Config asking() {
  Config config;
  config.shoal.auto_placement = true;
  config.shoal.offload_chunk_size = 1 << 14;
  return config;
}

PlacedConfig placed(const Config& config) {
  const std::unique_ptr<Group> world = make_single_group();
  return carry_out_placement(config, model(), 1, *world, at::kCPU);
}

TEST(EnginePlacement, LeavesAConfigThatDoesNotAskAlone) {
  Config config;
  config.zero.offload_optimizer.tier = Tier::host;
  const PlacedConfig found = placed(config);
  EXPECT_EQ(found.config.zero, config.zero);
  EXPECT_EQ(found.words, "");
}

TEST(EnginePlacement, NeedsABudgetSinceActivationsAreNotKnown) {
  EXPECT_THAT(testing::message_of([&] { placed(asking()); }), HasSubstr("needs shoal.host_budget here"));
}

TEST(EnginePlacement, StatesThatTheBudgetHasNoRoomForGoToDisk) {
  Config config = asking();
  config.shoal.host_budget = int64_t{1} << 30;
  const PlacedConfig all = placed(config);
  EXPECT_FALSE(all.config.shoal.auto_placement);
  EXPECT_EQ(all.config.zero.offload_optimizer.tier, Tier::device);
  EXPECT_THAT(all.words, HasSubstr("placement auto: everything is in memory; "));
  config.shoal.host_budget = int64_t{14} << 20;
  EXPECT_THAT(testing::message_of([&] { placed(config); }), HasSubstr("offload_optimizer.nvme_path for the disk"));
  config.zero.offload_optimizer.nvme_path = "/local";
  const PlacedConfig some = placed(config);
  EXPECT_EQ(some.config.zero.offload_optimizer.tier, Tier::disk);
  EXPECT_LT(some.config.zero.offload_optimizer.ratio, 1);
  EXPECT_THAT(some.words, HasSubstr("placement auto: offload_optimizer to nvme, ratio 0."));
}

}  // namespace
}  // namespace shoal
