#include "plan/headroom.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

TEST(Headroom, APartOfEachMemoryStaysFree) {
  EXPECT_EQ(usable_of_gpu(0), 0u);
  EXPECT_EQ(usable_of_host(0), 0u);
  EXPECT_EQ(usable_of_gpu(1000), 970u);
  EXPECT_EQ(usable_of_host(1000), 900u);
  EXPECT_LT(usable_of_gpu(size_t{80} << 30), (size_t{80} << 30) / 100 * 98);
}

}  // namespace
}  // namespace shoal
