#include "models/recompute.h"

#include <gtest/gtest.h>

#include <vector>

namespace shoal::models {
namespace {

TEST(Recompute, IsDescribedAsAUserAsksForIt) {
  EXPECT_EQ(describe({0, 0}, 32), "none");
  EXPECT_EQ(describe({0, 32}, 32), "selective");
  EXPECT_EQ(describe({32, 0}, 32), "full");
  EXPECT_EQ(describe({0, 5}, 32), "selective in 5 of 32 blocks");
  EXPECT_EQ(describe({6, 26}, 32), "full in 6 of 32 blocks, selective in the others");
  EXPECT_EQ(describe({6, 0}, 32), "full in 6 of 32 blocks");
  EXPECT_EQ(describe({6, 2}, 32), "full in 6 of 32 blocks, selective in 2");
  EXPECT_EQ(blocks_of(Recompute::automatic, 32), RecomputedBlocks{});
}

TEST(Recompute, TheLeastThatFitsIsTaken) {
  // Bytes a block: 10 with everything, 7 selective, 1 full.
  const auto within = [](int64_t room) {
    return least_recompute(3, [&](const RecomputedBlocks& blocks) {
      return blocks.full + 7 * blocks.selective + 10 * (3 - blocks.full - blocks.selective) <= room;
    });
  };
  EXPECT_EQ(within(30), (RecomputedBlocks{0, 0}));
  EXPECT_EQ(within(29), (RecomputedBlocks{0, 1}));
  EXPECT_EQ(within(21), (RecomputedBlocks{0, 3}));
  EXPECT_EQ(within(20), (RecomputedBlocks{1, 2}));
  EXPECT_EQ(within(9), (RecomputedBlocks{2, 1}));
  EXPECT_EQ(within(3), (RecomputedBlocks{3, 0}));
  EXPECT_EQ(within(0), (RecomputedBlocks{3, 0}));
}

}  // namespace
}  // namespace shoal::models
