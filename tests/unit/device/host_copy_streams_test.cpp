#include "device/host_wires.h"

#include <gtest/gtest.h>

#include <vector>

namespace shoal {

TEST(HostWires, ACopyIsThroughWhenItsCallReturns) {
  const auto wires = make_host_wires();
  std::vector<std::byte> home(100, std::byte{3}), place(100);
  EXPECT_EQ(wires->pin(home.data(), home.size()), "");
  wires->copy_in(0, place.data(), home.data(), 50, -1);
  EXPECT_EQ(place[49], std::byte{3});
  EXPECT_EQ(place[50], std::byte{0});
  place[0] = std::byte{9};
  wires->mark_used(0);
  wires->copy_out(0, home.data(), place.data(), 50);
  EXPECT_EQ(home[0], std::byte{9});
  wires->hold_queue_out(0);
  wires->make_room(5);
  wires->copy_in(4, place.data(), home.data() + 50, 1, -1);
  EXPECT_EQ(place[0], std::byte{3});
}

}  // namespace shoal
