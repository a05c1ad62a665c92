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
  EXPECT_EQ(mistakes_of(R"("aio": {"thread_count": 2})"),
            "[line 1, aio.thread_count] 2 is set by a name that DeepSpeed's code does not know. Write "
            "\"intra_op_parallelism\" "
            "instead.");
}

}  // namespace shoal::config
