#include "comm/gpu/gpus_of_ranks.h"

#include <gtest/gtest.h>

namespace shoal {

// Asking each other needs a GPU: tests/cuda/offload_test.cpp.
TEST(GpusOfRanks, CountsWhoSharesOne) {
  const std::vector<std::string> gpus = {"a", "b", "a", "a"};
  EXPECT_EQ(ranks_that_share(gpus, 0), 3);
  EXPECT_EQ(ranks_that_share(gpus, 1), 1);
}

}  // namespace shoal
