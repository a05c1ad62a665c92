#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

TEST(ShoalSection, ReadsItsKeys) {
  EXPECT_EQ(parse_members(R"("shoal": {"reproducible": true, "transport": "shm", "timeout_seconds": 2.5})").shoal,
            (ShoalConfig{true, Transport::shared_memory, 2.5}));
  EXPECT_EQ(parse_members(R"("shoal": {"transport": "auto"})").shoal.transport, Transport::automatic);
}

TEST(ShoalSection, RefusesWhatCannotBe) {
  EXPECT_EQ(mistakes_of(R"("shoal": {"transport": "nccl"})"),
            "[line 1, shoal.transport] \"nccl\" is not known. Give one of auto, shm, gloo.");
  EXPECT_EQ(mistakes_of(R"("shoal": {"timeout_seconds": 0})"),
            "[line 1, shoal.timeout_seconds] 0 is out of range. Give a number above 0 and at most 1000000.");
}

}  // namespace shoal::config
