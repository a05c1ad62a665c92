#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

TEST(ShoalSection, ReadsItsKeys) {
  EXPECT_EQ(parse_members(R"("shoal": {"reproducible": true, "fold_group": 3, "transport": "shm"})").shoal,
            (ShoalConfig{.reproducible = true, .fold_group = 3, .transport = Transport::shared_memory}));
  EXPECT_EQ(parse_members(R"("shoal": {"timeout_seconds": 2.5})").shoal.timeout_seconds, 2.5);
  EXPECT_EQ(parse_members(R"("shoal": {"transport": "auto"})").shoal.transport, Transport::automatic);
  EXPECT_EQ(parse_members(R"("shoal": {"transport": "nccl"})").shoal.transport, Transport::nccl);
  EXPECT_EQ(parse_members(R"("shoal": {})").shoal.reduce, Reduce::exact);
  EXPECT_EQ(parse_members(R"("shoal": {"reduce": "nccl"})").shoal.reduce, Reduce::nccl);
}

TEST(ShoalSection, RefusesWhatCannotBe) {
  EXPECT_EQ(mistakes_of(R"("shoal": {"transport": "mpi"})"),
            "[line 1, shoal.transport] \"mpi\" is not known. Give one of auto, shm, gloo, nccl.");
  EXPECT_EQ(mistakes_of(R"("shoal": {"reduce": "gloo"})"),
            "[line 1, shoal.reduce] \"gloo\" is not known. Give one of exact, nccl.");
  EXPECT_EQ(mistakes_of(R"("shoal": {"reduce": "nccl", "fold_group": 2})"),
            "[line 1, shoal.fold_group] groups micro-batches, and shoal.reduce nccl adds those of all ranks at once. "
            "Remove one of them.");
  EXPECT_EQ(mistakes_of(R"("shoal": {"timeout_seconds": 0})"),
            "[line 1, shoal.timeout_seconds] 0 is out of range. Give a number above 0 and at most 1000000.");
}

}  // namespace shoal::config
