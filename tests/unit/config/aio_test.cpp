#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

TEST(Aio, SaysHowTheDiskIsReadAndWritten) {
  const Config config = parse_members(
      R"("aio": {"block_size": 262144, "queue_depth": 32, "intra_op_parallelism": 2, "single_submit": true})");
  EXPECT_EQ(config.aio, (AioConfig{.block_size = 262144, .queue_depth = 32, .threads = 2}));
  EXPECT_EQ(config.notices,
            (std::vector<std::string>{"aio.single_submit has no effect: requests go to the kernel as they come."}));
}

TEST(Aio, ThreadCountNamesTheRealKey) {
  EXPECT_EQ(parse_members(R"("aio": {"thread_count": 2})").notices,
            (std::vector<std::string>{"aio.thread_count has no effect: DeepSpeed's code does not know this name; "
                                      "intra_op_parallelism is the number of queues."}));
  EXPECT_EQ(parse_members(R"("aio": {"block_size": "2MiB"})").aio.block_size, 2 << 20);
}

}  // namespace shoal::config
