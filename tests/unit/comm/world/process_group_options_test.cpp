#include <gtest/gtest.h>

#include <cstdlib>

#include "shoal/config.h"
#include "shoal/error.h"
#include "shoal/group.h"

namespace shoal {
namespace {

TEST(ProcessGroupOptions, CarryTheConfigsTransportAndTimeout) {
  const Config config =
      Config::from_text(R"({"train_batch_size": 1, "shoal": {"transport": "gloo", "timeout_seconds": 2.5}})");
  const ProcessGroupOptions options = process_group_options(config);
  EXPECT_EQ(options.transport, Transport::gloo);
  EXPECT_EQ(options.timeout, std::chrono::milliseconds(2500));
  EXPECT_EQ(process_group_options(Config{}).transport, Transport::automatic);
  EXPECT_EQ(process_group_options(Config{}).timeout, std::chrono::minutes(10));
}

TEST(ProcessGroupOptions, WorldSizeComesFromTheEnvironment) {
  setenv("RANK", "1", 1);
  setenv("WORLD_SIZE", "3", 1);
  setenv("LOCAL_RANK", "1", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", "29500", 1);
  EXPECT_EQ(world_size_of_environment(), 3);
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(name);
  EXPECT_THROW(world_size_of_environment(), Error);
}

}  // namespace
}  // namespace shoal
