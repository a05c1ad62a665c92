#include "shard/disk_shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "comm/group/handle.h"
#include "message_of.h"
#include "temp_folder.h"
#include "unit/store/faulty_io.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

const std::vector<UnitShards> kUnits = {{6000, Tier::disk}, {512, Tier::host}, {4096, Tier::disk},
                                        {0, Tier::device},  {100, Tier::disk}, {9000, Tier::disk}};
const std::vector<int> kOnDisk = {0, 2, 4, 5};

struct OnDisk {
  explicit OnDisk(int buffers, testing::FaultPlan plan = nullptr) {
    DiskFile::Options options =
        scratch_options({.block_size = 4096}, true, "weights", ChunkBuffers::file_nbytes(shards_on_disk(kUnits)));
    if (plan) options.make_io = [plan](int depth) { return std::make_unique<testing::FaultyIo>(depth, plan); };
    auto file = std::make_unique<ScratchFile>(folder.path(), options, ledger, MemoryKind::disk_weights);
    const auto memory = [this](size_t nbytes, MemoryKind kind) {
      return Slab::create(nbytes, Slab::Backing::anonymous, ledger, kind);
    };
    home = std::make_shared<DiskShards>(
        kUnits, std::move(file), buffers,
        make_resident_home(kUnits, [&](size_t nbytes, Tier) { return memory(nbytes, MemoryKind::host_weights); }),
        [&](size_t nbytes) { return memory(nbytes, MemoryKind::disk_buffers); });
  }

  void fill(int unit, int value) {
    home->change(unit);
    std::memset(home->address(unit), value, kUnits[static_cast<size_t>(unit)].nbytes);
  }
  bool holds(int unit, int value) {
    home->fetch(unit);
    const std::byte* bytes = home->address(unit);
    const size_t nbytes = kUnits[static_cast<size_t>(unit)].nbytes;
    return std::all_of(bytes, bytes + nbytes,
                       [&](std::byte byte) { return byte == std::byte(static_cast<unsigned char>(value)); });
  }

  testing::TempFolder folder;
  std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
  std::shared_ptr<DiskShards> home;
};

TEST(DiskShards, EveryUnitKeepsWhatWasLeftThereWithAnyNumberOfBuffers) {
  for (const int buffers : {1, 2, 3, 9}) {
    OnDisk on(buffers);
    for (int round = 0; round < 3; ++round) {
      for (int unit = 0; unit < 6; ++unit) {
        on.home->expect({unit, (unit + 1) % 6, (unit + 2) % 6});
        on.fill(unit, 10 * unit + round);
        if (unit % 2 == round % 2) on.home->store(unit);
      }
      for (int unit = 5; unit >= 0; --unit) {
        on.home->expect({unit, (unit + 5) % 6});
        EXPECT_TRUE(on.holds(unit, 10 * unit + round)) << buffers << " buffers, unit " << unit;
      }
    }
    EXPECT_EQ(on.home->reads_ahead(), std::min(buffers, 4));
  }
}

TEST(DiskShards, CountsItsFileItsBuffersAndWhatStaysInHostMemory) {
  OnDisk on(2);  // units 0 and 4 share a buffer, and 2 and 5
  EXPECT_EQ(on.ledger->line(MemoryKind::disk_weights).nbytes, 8192u + 4096 + 4096 + 12'288);
  EXPECT_EQ(on.ledger->line(MemoryKind::disk_buffers).nbytes, 8192u + 12'288);
  EXPECT_EQ(on.ledger->line(MemoryKind::host_weights).nbytes, 512u);
  on.home.reset();
  EXPECT_EQ(on.ledger->total_nbytes(), 0u);
  EXPECT_TRUE(std::filesystem::is_empty(on.folder.path()));
}

TEST(DiskShards, WhatIsLentStaysUntilItsReaderIsThrough) {
  OnDisk on(2);
  on.fill(0, 1);
  on.fill(4, 2);  // in the same buffer
  on.home->fetch(0);
  auto state = std::make_shared<Handle::State>();
  on.home->lend(0, Handle(state));
  on.home->expect({4, 2});
  EXPECT_TRUE(on.holds(2, 0));
  EXPECT_EQ(on.home->address(0)[0], std::byte(1)) << "reading ahead took the memory away";
  std::atomic<bool> entered = false, returned = false;
  std::thread next([&] {
    entered = true;
    EXPECT_TRUE(on.holds(4, 2));
    returned = true;
  });
  while (!entered) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(returned) << "did not wait for the reader";
  EXPECT_EQ(on.home->address(0)[0], std::byte(1));
  state->finish(nullptr);
  next.join();
}

// Who waits for the gather is told; whoever needs the memory next has nothing to do with it.
TEST(DiskShards, AReaderThatFailedReadsNoMore) {
  OnDisk on(1);
  on.fill(2, 5);
  on.home->fetch(0);
  auto state = std::make_shared<Handle::State>();
  on.home->lend(0, Handle(state));
  std::thread fails([&] { state->finish(std::make_exception_ptr(std::runtime_error("rank 1 is gone"))); });
  EXPECT_TRUE(on.holds(2, 5));
  fails.join();
  on.fill(0, 6);
  EXPECT_TRUE(on.holds(2, 5));
}

TEST(DiskShards, FailuresAreNamedByWhoeverNeedsTheBytes) {
  std::atomic<int> fails = 0;  // an errno, for reads or for writes
  std::atomic<bool> reads = true;
  OnDisk on(1, [&](const BlockRequest& request, int) {
    const bool hit = (request.kind == BlockRequest::Kind::read) == reads && request.offset == 8192;
    return testing::Fault{.error_number = hit ? fails.load() : 0};
  });
  on.fill(2, 7);
  on.home->fetch(0);
  fails = EIO;
  EXPECT_THAT(message_of([&] { on.home->fetch(2); }), HasSubstr("EIO"));
  EXPECT_THAT(message_of([&] { on.home->change(2); }), HasSubstr("read of 4096 bytes at 8192"));
  EXPECT_NO_THROW(on.home->fetch(4));
  fails = 0;
  EXPECT_TRUE(on.holds(2, 7));
  reads = false;
  fails = ENOSPC;
  on.fill(2, 8);
  on.home->store(2);
  EXPECT_THAT(message_of([&] { on.home->fetch(0); }), HasSubstr("ENOSPC"));
  EXPECT_TRUE(on.holds(2, 8)) << "what could not be written is gone";
  fails = 0;
  on.home->fetch(0);
  EXPECT_TRUE(on.holds(2, 8));
}

TEST(DiskShards, ShortTransfersAreGoneOnWith) {
  OnDisk on(1, [](const BlockRequest&, int index) {
    return testing::Fault{.at_most = index % 3 == 0 ? size_t{0} : SIZE_MAX};
  });
  for (const int unit : kOnDisk) on.fill(unit, unit + 1);
  for (const int unit : kOnDisk) EXPECT_TRUE(on.holds(unit, unit + 1));
}

TEST(DiskShards, BytesThatSomebodyChangedAreFoundByTheirChecksum) {
  OnDisk on(1);
  for (const int unit : kOnDisk) on.fill(unit, unit + 1);
  on.home->fetch(0);
  const std::filesystem::path path = std::filesystem::directory_iterator(on.folder.path())->path() / "weights";
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(8192 + 17);
    file.put('x');
  }
  EXPECT_THAT(message_of([&] { on.home->fetch(2); }), HasSubstr("is not what was written there"));
}

}  // namespace
}  // namespace shoal
