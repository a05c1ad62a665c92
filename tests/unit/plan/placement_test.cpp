#include "plan/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "message_of.h"
#include "plan/from_config.h"
#include "plan/memory.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;

// Four units of 16 Mi parameters in bf16: 128 MiB of weights, as much of gradients, 640 MiB of states.
ModelLayout layout() {
  std::vector<UnitSpec> units;
  for (int unit = 0; unit < 4; ++unit) {
    units.push_back({.name = "u" + std::to_string(unit),
                     .params = {{"p", {16 * (int64_t{1} << 20)}, DType::bf16, true, 0}},
                     .borrows = {}});
  }
  return lay_out(units, {.world = 1, .persistence_threshold = 0});
}

Config config_at(int stage) {
  Config config;
  config.precision = Precision::bf16;
  config.zero.stage = stage;
  config.zero.prefetch_bucket_size = 0;
  config.shoal.offload_chunk_size = 1 << 20;
  config.shoal.offload_ring_size = static_cast<int64_t>(20 * kMiB);
  return config;
}

MemoryPlan planned(Config config, const Placement& placement) {
  config.zero.offload_optimizer = placement.optimizer;
  config.zero.offload_param = placement.param;
  return plan_memory(layout(), memory_options(config, true));
}

TEST(Placement, KeepsEverythingOnADeviceThatHasRoomToTheByte) {
  const Config config = config_at(3);
  const size_t all = plan_memory(layout(), memory_options(config, true)).total();
  EXPECT_EQ(place(layout(), config, {all + 100, 0}, 100).optimizer.tier, Tier::device);
  EXPECT_EQ(place(layout(), config, {all + 99, 1000 * kMiB}, 100).optimizer.tier, Tier::host);
}

TEST(Placement, MovesNoMoreThanItMustAndFits) {
  for (const int stage : {0, 1, 3}) {
    const Config config = config_at(stage);
    for (const size_t device : {400 * kMiB, 500 * kMiB, 700 * kMiB}) {
      const Room room{device, 1000 * kMiB};
      const Placement placement = place(layout(), config, room, 30 * kMiB);
      EXPECT_EQ(placement.optimizer.tier, Tier::host);
      EXPECT_EQ(placement.param.tier, Tier::device);
      const MemoryPlan plan = planned(config, placement);
      EXPECT_LE(plan.total() + 30 * kMiB, device);
      Placement less = placement;
      less.optimizer.ratio -= 0.02;
      EXPECT_GT(planned(config, less).total() + 30 * kMiB, device) << "stage " << stage << " moves too much";
    }
  }
}

TEST(Placement, TakesTheDiskWhenTheHostIsSmallAndAPathIsNamed) {
  Config config = config_at(3);
  const Room room{400 * kMiB, 100 * kMiB};
  EXPECT_THAT(testing::message_of([&] { place(layout(), config, room, 0); }), HasSubstr("no placement fits"));
  config.zero.offload_optimizer.nvme_path = "/local";
  const Placement placement = place(layout(), config, room, 0);
  EXPECT_EQ(placement.optimizer.tier, Tier::disk);
  EXPECT_EQ(placement.optimizer.nvme_path, "/local");
  EXPECT_THAT(placement.why, HasSubstr("of disk"));
}

TEST(Placement, MovesWeightsLastAndAtStage3Only) {
  const Room room{270 * kMiB, 2000 * kMiB};
  const Placement placement = place(layout(), config_at(3), room, 0);
  EXPECT_EQ(placement.param.tier, Tier::host);
  EXPECT_LE(planned(config_at(3), placement).total(), room.device);
  EXPECT_THAT(testing::message_of([&] { place(layout(), config_at(2), room, 0); }), HasSubstr("stage 3"));
}

}  // namespace
}  // namespace shoal
