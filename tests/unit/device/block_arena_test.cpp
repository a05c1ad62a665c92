#include "device/block_arena.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

struct Fixture {
  std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();

  BlockArena arena(std::vector<size_t> tenants) {
    return BlockArena(std::move(tenants), [this](size_t nbytes) {
      return Slab::create(nbytes, Slab::Backing::anonymous, ledger, MemoryKind::gather_arena);
    });
  }
  size_t held() const { return ledger->line(MemoryKind::gather_arena).nbytes; }
};

TEST(BlockArena, UnitsOfOneSizeHandTheSameBlocksOn) {
  Fixture f;
  BlockArena arena = f.arena({100, 100, 100, 100});
  std::byte* first = arena.take(0);
  std::byte* second = arena.take(1);
  EXPECT_NE(first, second);
  arena.give(0);
  EXPECT_EQ(arena.take(2), first);
  arena.give(1);
  EXPECT_EQ(arena.take(3), second);
  EXPECT_EQ(arena.nbytes(), 200u);
  EXPECT_EQ(f.held(), 200u);
}

TEST(BlockArena, ASmallTenantLeavesTheRestOfABlockToOthers) {
  Fixture f;
  BlockArena arena = f.arena({100, 30, 70, 100});
  std::byte* whole = arena.take(0);
  arena.give(0);
  EXPECT_EQ(arena.take(1), whole);
  EXPECT_EQ(arena.take(2), whole + 30);
  arena.give(1);
  arena.give(2);
  EXPECT_EQ(arena.take(3), whole);  // the parts are one block again
  EXPECT_EQ(arena.nbytes(), 100u);
}

TEST(BlockArena, TakesTheSmallestBlockThatHolds) {
  Fixture f;
  BlockArena arena = f.arena({200, 50, 50});
  std::byte* large = arena.take(0);
  std::byte* small = arena.take(1);
  arena.give(0);
  arena.give(1);
  EXPECT_EQ(arena.take(2), small);
  EXPECT_NE(small, large);
}

TEST(BlockArena, BlocksOfTwoTenantsNeverOverlap) {
  Fixture f;
  const std::vector<size_t> sizes = {96, 32, 64, 160, 8};
  BlockArena arena = f.arena(sizes);
  std::vector<std::byte*> at(sizes.size(), nullptr);
  uint32_t random = 7;
  for (int step = 0; step < 500; ++step) {
    random = random * 1664525u + 1013904223u;
    const auto tenant = static_cast<size_t>(random >> 16) % sizes.size();
    if (at[tenant] != nullptr) {
      arena.give(static_cast<int>(tenant));
      at[tenant] = nullptr;
      continue;
    }
    at[tenant] = arena.take(static_cast<int>(tenant));
    for (size_t other = 0; other < sizes.size(); ++other) {
      if (other == tenant || at[other] == nullptr) continue;
      EXPECT_TRUE(at[tenant] + sizes[tenant] <= at[other] || at[other] + sizes[other] <= at[tenant]);
    }
  }
}

TEST(BlockArena, AnEmptyTenantTakesNothing) {
  Fixture f;
  BlockArena arena = f.arena({0});
  EXPECT_EQ(arena.take(0), nullptr);
  arena.give(0);
  EXPECT_EQ(arena.nbytes(), 0u);
}

}  // namespace
}  // namespace shoal
