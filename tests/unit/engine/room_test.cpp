#include "engine/room.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

TEST(Room, ReadsWhatIsAvailable) {
  EXPECT_EQ(available_nbytes("MemTotal:  100 kB\nMemFree: 10 kB\nMemAvailable:    50 kB\nBuffers: 1 kB\n"), 50u * 1024);
  EXPECT_EQ(available_nbytes("MemTotal: 100 kB\n"), 0u);
  EXPECT_EQ(available_nbytes("MemAvailable: 50 kB\n", "max\n", "100\n"), 50u * 1024);
  EXPECT_EQ(available_nbytes("MemAvailable: 50 kB\n", "20000\n", "4000\n"), 16000u);
  EXPECT_EQ(available_nbytes("MemAvailable: 50 kB\n", "20000\n", "24000\n"), 0u);
}

TEST(Room, OnTheCpuTheDeviceIsTheHost) {
  const std::unique_ptr<Group> world = make_single_group();
  Config config;
  const Room free = room_of_ranks(config, *world, at::kCPU);
  EXPECT_GT(free.host, 0u);
  EXPECT_EQ(free.device, free.host);
  config.shoal.device_budget = 1000;
  config.shoal.host_budget = 5000;
  const Room given = room_of_ranks(config, *world, at::kCPU);
  EXPECT_EQ(given.device, 1000u);
  EXPECT_EQ(given.host, 5000u);
}

}  // namespace
}  // namespace shoal
