#include "device/page_arena.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/check.h"

namespace shoal {
namespace {

constexpr size_t kGranule = 64 * 1024;

TEST(PageArena, IsAsLargeAsTheMostTakenAtOneTime) {
  auto ledger = std::make_shared<Ledger>();
  {
    PageArena arena({kGranule, 2 * kGranule, 3 * kGranule}, kGranule, ledger);
    EXPECT_EQ(arena.nbytes(), 0u);
    arena.take(0);
    arena.take(1);
    EXPECT_EQ(arena.nbytes(), 3 * kGranule);
    arena.give(0);
    arena.give(1);
    arena.take(2);  // its pages come from two places; the range is contiguous all the same
    EXPECT_EQ(arena.nbytes(), 3 * kGranule);
    EXPECT_EQ(ledger->line(MemoryKind::gather_arena).nbytes, 3 * kGranule);
  }
  EXPECT_EQ(ledger->total_nbytes(), 0u);
}

TEST(PageArena, TenantsNeverShareAPage) {
  auto ledger = std::make_shared<Ledger>();
  PageArena arena({kGranule, 2 * kGranule, kGranule, 3 * kGranule}, kGranule, ledger);
  const size_t nbytes[] = {kGranule, 2 * kGranule, kGranule, 3 * kGranule};
  std::vector<std::byte*> taken(4, nullptr);
  unsigned random = 1;
  for (int round = 0; round < 200; ++round) {
    random = random * 1103515245u + 12345u;
    const int tenant = static_cast<int>((random >> 16) % 4);
    if (taken[tenant] == nullptr) {
      taken[tenant] = arena.take(tenant);
      std::memset(taken[tenant], tenant + 1, nbytes[tenant]);
    } else {
      arena.give(tenant);
      taken[tenant] = nullptr;
    }
    for (int other = 0; other < 4; ++other) {
      if (taken[other] == nullptr) continue;
      for (size_t at = 0; at < nbytes[other]; at += 4096) {
        ASSERT_EQ(taken[other][at], static_cast<std::byte>(other + 1)) << "round " << round;
      }
    }
  }
  EXPECT_LE(arena.nbytes(), 7 * kGranule);
}

TEST(PageArena, AStalePointerFaultsInsteadOfReadingAnotherTenant) {
  PageArena arena({kGranule, kGranule}, kGranule, std::make_shared<Ledger>());
  const std::byte* stale = arena.take(0);
  arena.give(0);
  arena.take(1);  // gets the same pages
  EXPECT_DEATH({ [[maybe_unused]] volatile std::byte read = *stale; }, "");
}

TEST(PageArena, AddressOfATenantNeverChanges) {
  PageArena arena({kGranule, kGranule}, kGranule, std::make_shared<Ledger>());
  std::byte* first = arena.take(0);
  arena.give(0);
  arena.take(1);
  EXPECT_EQ(arena.take(0), first);
}

TEST(PageArena, TakingTwiceOrGivingUntakenIsABrokenPromise) {
  PageArena arena({kGranule}, kGranule, std::make_shared<Ledger>());
  EXPECT_THROW(arena.give(0), BrokenPromise);
  arena.take(0);
  EXPECT_THROW(arena.take(0), BrokenPromise);
}

TEST(PageArena, EmptyTenantIsFine) {
  PageArena arena({0}, kGranule, std::make_shared<Ledger>());
  EXPECT_EQ(arena.take(0), nullptr);
  arena.give(0);
}

}  // namespace
}  // namespace shoal
