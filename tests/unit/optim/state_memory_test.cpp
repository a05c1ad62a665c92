#include "optim/state_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "device/host_queue.h"
#include "message_of.h"
#include "temp_folder.h"

namespace shoal {
namespace {

StateChunk chunk_on(Tier tier, size_t nbytes) {
  StateChunk chunk;
  chunk.tier = tier;
  chunk.nbytes = nbytes;
  return chunk;
}

std::vector<StateChunk> one_on_each() {
  return {chunk_on(Tier::device, 100), chunk_on(Tier::host, 200), chunk_on(Tier::disk, 300),
          chunk_on(Tier::disk, 5000)};
}

StateMemory memory_on_each(const testing::TempFolder& folder, Queue& queue, const std::shared_ptr<Ledger>& ledger) {
  StateTiers tiers;
  tiers.offload.nvme_path = folder.path();
  return {one_on_each(), tiers, queue, ledger};
}

TEST(StateMemory, KeepsEachChunkOnItsTierAndCountsIt) {
  const testing::TempFolder folder;
  const auto ledger = std::make_shared<Ledger>();
  const auto queue = make_host_queue();
  {
    StateMemory memory = memory_on_each(folder, *queue, ledger);
    EXPECT_EQ(ledger->line(MemoryKind::states).nbytes, 100u);
    EXPECT_EQ(ledger->line(MemoryKind::host_states).nbytes, 200u);
    EXPECT_EQ(ledger->line(MemoryKind::disk_states).nbytes, 4096u + 8192);
    EXPECT_EQ(ledger->line(MemoryKind::disk_buffers).nbytes, 4096u + 8192);
    EXPECT_TRUE(memory.is_resident(0));
    EXPECT_TRUE(memory.is_resident(1));
    EXPECT_FALSE(memory.is_resident(2));
    for (int chunk = 0; chunk < 4; ++chunk) {
      std::memset(memory.change(chunk), chunk + 1, memory.chunks()[static_cast<size_t>(chunk)].nbytes);
    }
    for (int chunk = 0; chunk < 4; ++chunk) {
      memory.begin_use(chunk);
      EXPECT_EQ(memory.address(chunk)[99], std::byte(static_cast<unsigned char>(chunk + 1)));
      memory.end_use(chunk);
    }
    EXPECT_NE(memory.file()->description().find(folder.path()), std::string::npos);
  }
  EXPECT_EQ(ledger->total_nbytes(), 0u);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(StateMemory, OnlyStatesInHostMemoryHaveASparePlaceWhichMayBeTaken) {
  const testing::TempFolder folder;
  const auto ledger = std::make_shared<Ledger>();
  const auto queue = make_host_queue();
  StateMemory memory = memory_on_each(folder, *queue, ledger);
  EXPECT_EQ(memory.spare(1), nullptr);
  memory.make_spares(ledger);
  EXPECT_EQ(ledger->line(MemoryKind::host_states).nbytes, 2 * 200u);
  for (const int chunk : {0, 2, 3}) EXPECT_EQ(memory.spare(chunk), nullptr) << chunk;
  std::byte *const first = memory.address(1), *const second = memory.spare(1);
  ASSERT_TRUE(second != nullptr && second != first);
  memory.take_spare(1);
  EXPECT_EQ(memory.address(1), second);
  EXPECT_EQ(memory.look(1), second);
  EXPECT_EQ(memory.spare(1), first);
}

TEST(StateMemory, WithoutADiskTierThereIsNoFolder) {
  const auto queue = make_host_queue();
  StateTiers tiers;
  tiers.offload.nvme_path = "/proc/nobody can write here";
  const StateMemory memory({chunk_on(Tier::host, 64)}, tiers, *queue, std::make_shared<Ledger>());
  EXPECT_EQ(memory.file(), nullptr);
}

TEST(StateMemory, APathThatCannotBeUsedIsNamed) {
  const auto queue = make_host_queue();
  StateTiers tiers;
  tiers.offload.nvme_path = "/proc/nobody can write here";
  const std::string message =
      testing::message_of([&] { StateMemory(one_on_each(), tiers, *queue, std::make_shared<Ledger>()); });
  EXPECT_NE(message.find("/proc/nobody can write here"), std::string::npos) << message;
}

}  // namespace
}  // namespace shoal
