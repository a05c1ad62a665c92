#include "shoal/error.h"

#include <gtest/gtest.h>

namespace shoal {

TEST(Error, ReadsAsPlaceThenMessage) {
  const Error error("config zero_optimization.stage", "4 is not a ZeRO stage. Use 0, 1, 2 or 3.");
  EXPECT_STREQ(error.what(), "[config zero_optimization.stage] 4 is not a ZeRO stage. Use 0, 1, 2 or 3.");
  EXPECT_EQ(error.place(), "config zero_optimization.stage");
}

}  // namespace shoal
