// Mapping other processes' slabs (here: the own process's, through /proc) and letting go of them.
#include "comm/host/peer_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>

#include "comm/host/board_carrier.h"
#include "comm/host/shm_board.h"
#include "comm/world/channel_group.h"
#include "unit/comm/memory_store.h"
#include "unit/comm/rank_threads.h"

namespace shoal {
namespace {

std::shared_ptr<Slab> shareable(size_t nbytes) {
  return Slab::create(nbytes, Slab::Backing::shareable, std::make_shared<Ledger>(), MemoryKind::weights);
}

TEST(PeerMapping, SeesWhatTheOwnerWrites) {
  auto slab = shareable(100);
  auto mapping = PeerMapping::open(getpid(), slab->fd(), 100, false);
  ASSERT_TRUE(mapping);
  slab->data()[99] = std::byte{7};
  EXPECT_EQ(mapping->data()[99], std::byte{7});
}

TEST(PeerMapping, RefusesAFileThatIsGoneOrTooSmall) {
  EXPECT_FALSE(PeerMapping::open(getpid(), 9999, 100, false));
  auto slab = shareable(100);
  EXPECT_FALSE(PeerMapping::open(getpid(), slab->fd(), 5000, false));
  EXPECT_EQ(errno, ESTALE);
}

TEST(PeerMemory, MapsOnceAndForgets) {
  PeerMemory memory({getpid()});
  auto slab = shareable(100);
  const SlabPlace place{slab->id(), slab->fd(), slab->nbytes()};
  auto first = memory.find(0, place);
  EXPECT_EQ(first, memory.find(0, place));
  EXPECT_EQ(memory.count(), 1u);
  memory.forget(0, slab->id());
  EXPECT_EQ(memory.count(), 0u);
  EXPECT_FALSE(memory.find(0, {77, 9999, 100}));
  EXPECT_EQ(memory.count(), 0u);
}

TEST(OwnSlabs, FindsTheSlabThatHoldsTheWholeRange) {
  OwnSlabs slabs;
  auto a = shareable(100), b = shareable(5000);
  slabs.add(a);
  slabs.add(b);
  EXPECT_EQ(slabs.find(b->data() + 10, 4990)->place.id, b->id());
  EXPECT_EQ(slabs.find(b->data() + 10, 4990)->offset, 10u);
  EXPECT_FALSE(slabs.find(b->data() + 10, 4991));
  std::byte elsewhere;
  EXPECT_FALSE(slabs.find(&elsewhere, 1));
}

TEST(OwnSlabs, TellsWhichSlabsDied) {
  OwnSlabs slabs;
  auto a = shareable(100), b = shareable(100);
  const uint64_t id = a->id();
  slabs.add(a);
  slabs.add(b);
  a.reset();
  EXPECT_EQ(slabs.take_dead(), std::vector<uint64_t>{id});
  EXPECT_TRUE(slabs.take_dead().empty());
}

size_t shoal_mappings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:shoal") != std::string::npos;
  return count;
}

TEST(PeerMemory, WhatAPeerFreedIsUnmappedByLaterCollectivesOrWhenTold) {
  const size_t before = shoal_mappings();
  {
    const auto store = std::make_shared<testing::MemoryStore>();
    testing::Groups groups;
    std::vector<std::shared_ptr<ShmWorld>> worlds;
    for (int rank = 0; rank < 2; ++rank) {
      worlds.push_back(
          std::make_shared<ShmWorld>(ShmWorld::Options{rank, kDefaultTimeout, {getpid(), getpid()}, store}));
      groups.push_back(
          std::make_unique<ChannelGroup>(std::make_unique<BoardCarrier>(std::make_unique<ShmBoard>(worlds.back()))));
    }
    testing::run_ranks(std::move(groups), [&](Group& group) {
      PeerMemory& mapped = worlds[static_cast<size_t>(group.rank())]->peer_memory();
      const auto gather = [&] {
        auto slab = full(group).allocate(64, std::make_shared<Ledger>(), MemoryKind::weights);
        group.all_gather({{"gather", "x"}, slab->data() + 32 * group.rank(), slab->data(), 32, slab}).wait();
      };
      gather();
      EXPECT_EQ(mapped.count(), 1u);
      for (int i = 0; i < 2; ++i) group.barrier({"later", ""}).wait();
      EXPECT_EQ(mapped.count(), 0u);
      gather();
      full(group).forget_peer_memory();
      EXPECT_EQ(mapped.count(), 0u);
    });
    worlds.clear();
  }
  EXPECT_EQ(shoal_mappings(), before);
}

}  // namespace
}  // namespace shoal
