#include "device/host_copy_streams.h"

#include <gtest/gtest.h>

#include <vector>

namespace shoal {

TEST(HostCopyStreams, ACopyIsThroughWhenItsCallReturns) {
  const auto streams = make_host_copy_streams();
  std::vector<std::byte> home(100, std::byte{3}), place(100);
  EXPECT_EQ(streams->pin(home.data(), home.size()), "");
  streams->copy_in(0, place.data(), home.data(), 50, -1);
  EXPECT_EQ(place[49], std::byte{3});
  EXPECT_EQ(place[50], std::byte{0});
  place[0] = std::byte{9};
  streams->mark_used(0);
  streams->copy_out(0, home.data(), place.data(), 50);
  EXPECT_EQ(home[0], std::byte{9});
  streams->hold_queue_out(0);
  streams->make_room(5);
  streams->copy_in(4, place.data(), home.data() + 50, 1, -1);
  EXPECT_EQ(place[0], std::byte{3});
}

}  // namespace shoal
