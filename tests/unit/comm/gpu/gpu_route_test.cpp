#include "comm/gpu/gpu_route.h"

#include <gtest/gtest.h>

#include "message_of.h"

namespace shoal {
namespace {

TEST(GpuRoute, RanksWithAGpuOfTheirOwnGoThroughNccl) {
  for (const bool only_nccl : {false, true}) {
    EXPECT_EQ(choose_gpu_route({{0, "a", ""}, {1, "b", ""}}, only_nccl), GpuRoute::nccl);
    EXPECT_EQ(choose_gpu_route({{0, "a", "h"}, {1, "b", "h"}}, only_nccl), GpuRoute::nccl);
  }
}

TEST(GpuRoute, RanksThatShareOneGoThroughNcclWhenTheirHostIdsDiffer) {
  EXPECT_EQ(choose_gpu_route({{0, "a", "0"}, {1, "a", "1"}}, false), GpuRoute::nccl);
  EXPECT_EQ(choose_gpu_route({{0, "a", "0"}, {1, "b", "0"}, {2, "a", "1"}, {3, "b", "1"}}, true), GpuRoute::nccl);
  EXPECT_EQ(choose_gpu_route({{0, "a", ""}, {1, "a", "1"}}, true), GpuRoute::nccl);
}

TEST(GpuRoute, OthersGoThroughTheHostsUnlessOnlyNcclWillDo) {
  EXPECT_EQ(choose_gpu_route({{0, "a", ""}, {1, "a", ""}}, false), GpuRoute::staged);
  EXPECT_EQ(choose_gpu_route({{0, "a", "0"}, {1, "a", "1"}, {2, "a", "0"}}, false), GpuRoute::staged);
  EXPECT_EQ(testing::message_of([] {
              choose_gpu_route({{0, "b", ""}, {4, "a", ""}, {6, "a", ""}}, true);
            }),
            "[config shoal.transport] nccl takes no two ranks on one GPU, and ranks 4 and 6 share one. Give each a GPU "
            "of its own; or start them by `shoal launch --share-gpu`, which gives each an NCCL_HOSTID of its own; or "
            "use auto, which goes through the hosts.");
  EXPECT_NE(testing::message_of([] {
              choose_gpu_route({{0, "a", "h"}, {1, "a", "h"}}, true);
            }).find("share one and NCCL_HOSTID=h."),
            std::string::npos);
}

}  // namespace
}  // namespace shoal
