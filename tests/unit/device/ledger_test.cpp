#include "device/ledger.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace shoal {

TEST(Ledger, KeepsNowAndPeakPerKind) {
  Ledger ledger;
  ledger.add(MemoryKind::weights, 100);
  ledger.add(MemoryKind::weights, 50);
  ledger.remove(MemoryKind::weights, 120);
  ledger.add(MemoryKind::states, 7);
  EXPECT_EQ(ledger.line(MemoryKind::weights).nbytes, 30u);
  EXPECT_EQ(ledger.line(MemoryKind::weights).peak, 150u);
  EXPECT_EQ(ledger.total_nbytes(), 37u);
}

TEST(Ledger, RemovingMoreThanIsHeldIsABrokenPromise) {
  Ledger ledger;
  ledger.add(MemoryKind::weights, 1);
  EXPECT_THROW(ledger.remove(MemoryKind::weights, 2), BrokenPromise);
}

TEST(Ledger, EveryKindHasAName) {
  for (size_t kind = 0; kind < kMemoryKinds; ++kind) EXPECT_NE(name_of(static_cast<MemoryKind>(kind)), "?");
}

}  // namespace shoal
