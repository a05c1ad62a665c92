// What every carrier has from its base.
#include "comm/group/carrier.h"

#include <gtest/gtest.h>

#include "unit/comm/lone_carrier.h"

namespace shoal {
namespace {

TEST(Carrier, SaysWhoItIs) {
  const testing::LoneCarrier carrier({nullptr, nullptr, nullptr}, 2, 64);
  EXPECT_EQ(carrier.rank(), 2);
  EXPECT_EQ(carrier.size(), 3);
  EXPECT_EQ(carrier.global(), 2);
  EXPECT_EQ(carrier.transport_name(), "test");
}

TEST(Carrier, ScratchGrowsAndKeepsWhatItHolds) {
  testing::LoneCarrier carrier({nullptr}, 0, 64);
  std::byte* small = carrier.scratch(10);
  small[3] = std::byte{7};
  EXPECT_EQ(carrier.scratch(5000)[3], std::byte{7});
  EXPECT_EQ(carrier.scratch(10)[3], std::byte{7});
}

TEST(Carrier, StripsAtTheEndMayBeShortOrEmpty) {
  const Strips strips{nullptr, 100, 40, 4};
  EXPECT_EQ(strips.nbytes_at(0), 40u);
  EXPECT_EQ(strips.nbytes_at(2), 20u);
  EXPECT_EQ(strips.nbytes_at(3), 0u);
}

}  // namespace
}  // namespace shoal
