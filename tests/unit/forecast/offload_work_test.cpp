#include "forecast/offload_work.h"

#include <gtest/gtest.h>

#include <numeric>

#include "plan/from_config.h"
#include "unit/forecast/shapes.h"

namespace shoal::forecast {
namespace {

using testing::config_at;

DecoderShape small() {
  return {.hidden = 1024, .layers = 4, .heads = 8, .q_width = 1024, .kv_width = 1024, .ffn = 2816, .vocab = 32000};
}

OffloadWork work_of(const Config& config, double ring = 0) {
  const PlanSubject subject = testing::subject_of(small());
  const ModelLayout layout = lay_out(subject.units, layout_options(config, 1));
  return offload_work(layout, config, *find_cluster("H200"), {}, ring);
}

double sum(const OffloadWork& work, double UnitOffload::*of) {
  return std::accumulate(work.units.begin(), work.units.end(), 0.0,
                         [&](double all, const UnitOffload& unit) { return all + unit.*of; });
}

TEST(OffloadWork, NothingIsOffTheDeviceUnlessAsked) {
  const OffloadWork work = work_of(config_at(3));
  EXPECT_FALSE(work.any());
  EXPECT_EQ(work.units.size(), 6u);
}

TEST(OffloadWork, StatesOfTheHostStreamThroughARingThatHoldsThem) {
  Config config = config_at(3);
  config.zero.offload_optimizer.tier = Tier::host;
  const OffloadWork work = work_of(config, 64e9);
  const auto numel = static_cast<double>(testing::subject_of(small()).numel());
  EXPECT_NEAR(sum(work, &UnitOffload::streamed), 10 * numel, 0.01 * numel) << "10 bytes a parameter in bf16";
  EXPECT_EQ(sum(work, &UnitOffload::host_numel), 0) << "the GPU keeps up";
}

TEST(OffloadWork, TheHostUpdatesAllWhereItIsToldTo) {
  Config config = config_at(3);
  config.zero.offload_optimizer.tier = Tier::host;
  config.shoal.offload_update = OffloadUpdate::host;
  const OffloadWork work = work_of(config);
  const auto numel = static_cast<double>(testing::subject_of(small()).numel());
  EXPECT_NEAR(sum(work, &UnitOffload::host_numel), numel, 0.01 * numel);
  EXPECT_NEAR(sum(work, &UnitOffload::host_update), 26 * numel, 0.01 * 26 * numel);
  EXPECT_EQ(sum(work, &UnitOffload::streamed), 0);
  EXPECT_TRUE(work.early_gradients);
}

TEST(OffloadWork, ASmallRingLeavesAShareToTheHost) {
  Config config = config_at(3);
  config.zero.offload_optimizer.tier = Tier::host;
  const OffloadWork work = work_of(config, 1e6);
  const double by_host = sum(work, &UnitOffload::host_numel), streamed = sum(work, &UnitOffload::streamed);
  EXPECT_GT(by_host, 0);
  EXPECT_GT(streamed, 0);
  config.shoal.offload_update = OffloadUpdate::device;
  EXPECT_EQ(sum(work_of(config, 1e6), &UnitOffload::host_numel), 0);
}

TEST(OffloadWork, StatesOnDiskAreReadAndWritten) {
  Config config = config_at(3);
  config.zero.offload_optimizer.tier = Tier::disk;
  config.zero.offload_optimizer.nvme_path = "x";
  const OffloadWork work = work_of(config);
  const auto numel = static_cast<double>(testing::subject_of(small()).numel());
  EXPECT_NEAR(sum(work, &UnitOffload::disk), 10 * numel, 0.01 * 10 * numel);
  EXPECT_NEAR(sum(work, &UnitOffload::host_numel), numel, 0.01 * numel);
}

TEST(OffloadWork, WeightsOfTheHostComeForEachGather) {
  Config config = config_at(3);
  config.zero.offload_param.tier = Tier::host;
  const OffloadWork work = work_of(config);
  const auto numel = static_cast<double>(testing::subject_of(small()).numel());
  EXPECT_NEAR(sum(work, &UnitOffload::weights), 2 * numel, 0.01 * 2 * numel);
  config.zero.stage = 2;
  EXPECT_EQ(sum(work_of(config), &UnitOffload::weights), 0) << "stage 2 has no shards of weights";
}

}  // namespace
}  // namespace shoal::forecast
