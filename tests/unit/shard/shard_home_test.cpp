#include "shard/shard_home.h"

#include <gtest/gtest.h>

#include <cstring>

#include "device/host_queue.h"
#include "message_of.h"
#include "temp_folder.h"
#include "unit/optim/far_queue.h"

namespace shoal {
namespace {

ModelLayout two_units() {
  return lay_out({{"a", {{"w", {1024}, DType::f32}}, {}}, {"b", {{"w", {2048}, DType::f32}}, {}}},
                 {.mesh = 1, .persistence_threshold = 0});
}

std::shared_ptr<ShardHome> home_of(const ShardOptions& options, Queue& queue, const std::shared_ptr<Ledger>& ledger) {
  const std::unique_ptr<Group> group = make_single_group();
  return make_shard_home(place_shards(two_units(), options), options.buffers, nullptr, *group, queue, ledger);
}

TEST(ShardHome, ResidentShardsAreAtHandAllTheTimeAndCountedOnTheirTier) {
  const auto queue = make_host_queue();
  for (const Tier tier : {Tier::device, Tier::host}) {
    const auto ledger = std::make_shared<Ledger>();
    const auto home = home_of({.stage = 3, .tier = tier}, *queue, ledger);
    const MemoryKind kind = tier == Tier::device ? MemoryKind::weights : MemoryKind::host_weights;
    EXPECT_EQ(ledger->line(kind).nbytes, 3072u * 4);
    EXPECT_EQ(ledger->total_nbytes(), 3072u * 4);
    EXPECT_EQ(home->address(1), home->address(0) + 4096);
    std::memset(home->address(0), 1, 4096);
    std::memset(home->address(1), 2, 8192);
    home->fetch(1);
    home->change(0);
    home->store(0);
    EXPECT_EQ(home->address(0)[4095], std::byte(1));
    EXPECT_EQ(home->address(1)[0], std::byte(2));
    EXPECT_EQ(home->reads_ahead(), 0);
    EXPECT_EQ(home->file(), nullptr);
  }
}

TEST(ShardHome, ShardsOffAGpuLieInHostMemory) {
  testing::FarQueue far;
  const auto ledger = std::make_shared<Ledger>();
  const auto home = home_of({.stage = 3, .tier = Tier::host}, far, ledger);
  EXPECT_FALSE(home->slab()->on_device());
  EXPECT_EQ(ledger->line(MemoryKind::host_weights).nbytes, 3072u * 4);
}

// Of 3072 elements a share of 2048 goes, and the front unit stays.
TEST(ShardHome, SomeUnitsStayOnTheDevice) {
  testing::FarQueue far;
  const auto ledger = std::make_shared<Ledger>();
  const auto home = home_of({.stage = 3, .tier = Tier::host, .ratio = 2.0 / 3}, far, ledger);
  EXPECT_EQ(ledger->line(MemoryKind::weights).nbytes, 1024u * 4);
  EXPECT_EQ(ledger->line(MemoryKind::host_weights).nbytes, 2048u * 4);
  std::memset(home->address(0), 1, 4096);
  std::memset(home->address(1), 2, 8192);
  EXPECT_EQ(home->address(0)[4095], std::byte(1));
}

TEST(ShardHome, TheFileIsMadeWithAllItsSpaceWhereSomethingIsOnDisk) {
  const testing::TempFolder folder;
  const auto ledger = std::make_shared<Ledger>();
  Config config;
  config.zero.stage = 3;
  config.zero.offload_param = {.tier = Tier::disk, .nvme_path = folder.path(), .max_in_cpu = 1024};
  const auto file = make_shard_file(two_units(), config, ledger);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->file().nbytes(), 8192u);
  EXPECT_EQ(ledger->line(MemoryKind::disk_weights).nbytes, 8192u);
  config.zero.offload_param.max_in_cpu = 1 << 20;
  EXPECT_EQ(make_shard_file(two_units(), config, ledger), nullptr);
  config.zero.offload_param = {};
  EXPECT_EQ(make_shard_file(two_units(), config, ledger), nullptr);
}

}  // namespace
}  // namespace shoal
