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
  const std::string stat = "anon 3000\nfile 16000\ninactive_anon 5\ninactive_file 15000\nactive_file 1000\n";
  EXPECT_EQ(available_nbytes("MemAvailable: 50 kB\n", "20000\n", "19000\n", stat), 16000u);
  EXPECT_EQ(available_nbytes("MemAvailable: 50 kB\n", "20000\n", "14000\n", stat), 20000u) << "read at another moment";
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
