#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

TEST(Aio, HasNoEffectWhileNothingIsOffloaded) {
  const Config config = parse_members(R"("aio": {"block_size": 262144, "queue_depth": 32})");
  EXPECT_EQ(config.notices, (std::vector<std::string>{"aio.block_size has no effect: nothing is offloaded to disk.",
                                                      "aio.queue_depth has no effect: nothing is offloaded to disk."}));
}

TEST(Aio, ThreadCountNamesTheRealKey) {
  EXPECT_EQ(mistakes_of(R"("aio": {"thread_count": 2})"),
            "[line 1, aio.thread_count] 2 is set by a name that DeepSpeed's code does not know. Write "
            "\"intra_op_parallelism\" "
            "instead.");
}

}  // namespace shoal::config
