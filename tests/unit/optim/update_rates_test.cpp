#include "optim/update_rates.h"

#include <gtest/gtest.h>

#include "unit/optim/far_queue.h"

namespace shoal {
namespace {

TEST(UpdateRates, AreMeasuredForEveryOptimizerAndLeaveNoMemory) {
  const auto ledger = std::make_shared<Ledger>();
  const std::unique_ptr<Queue> host = make_host_queue();
  for (const OptimizerRow& row : kOptimizers) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      testing::FarQueue far;
      OptimizerConfig optimizer;
      optimizer.kind = row.kind;
      std::vector<std::byte> there(5000);
      const UpdateRates rates =
          measure_update_rates(far, there, *host, {.dtype = dtype, .optimizer = optimizer, .numel = 10000}, ledger);
      EXPECT_GT(rates.bus_nbytes, 0);
      EXPECT_GT(rates.host_numel, 0);
      EXPECT_EQ(ledger->total_nbytes(), 0u);
    }
  }
}

TEST(UpdateRates, MemoryThatCannotBePinnedIsAnErrorThatLeavesNothing) {
  const auto ledger = std::make_shared<Ledger>();
  const std::unique_ptr<Queue> host = make_host_queue();
  testing::FarQueue far;
  far.refuse_host_above(100);
  std::vector<std::byte> there(5000);
  EXPECT_THROW(measure_update_rates(far, there, *host, {.numel = 10000}, ledger), Error);
  EXPECT_EQ(ledger->total_nbytes(), 0u);
}

}  // namespace
}  // namespace shoal
