#include "plan/save_memory.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

constexpr size_t kMebi = size_t{1} << 20;

TEST(SaveMemoryPlan, IsWhatIsSavedButAtMostWhatMayBeTaken) {
  EXPECT_EQ(picture_nbytes(0, 100 * kMebi), 0u);
  EXPECT_EQ(picture_nbytes(100'000, 100 * kMebi), 102'400u) << "in whole pages";
  EXPECT_EQ(picture_nbytes(100 * kMebi, 50 * kMebi + 5000), 50 * kMebi + 4096);
  EXPECT_EQ(picture_nbytes(100 * kMebi, 1), kLeastPicture) << "less does not do";
  EXPECT_EQ(picture_nbytes(100 * kMebi, 0), kLeastPicture);
  EXPECT_EQ(picture_nbytes(10 * kMebi, 1), 10 * kMebi) << "and no more than is saved";
}

TEST(SaveMemoryPlan, UnaskedIsHalfOfWhatIsFreeWithinTheBudget) {
  EXPECT_EQ(unasked_picture({.free = 80 * kMebi, .budget = {}, .held = 70 * kMebi}), 40 * kMebi);
  EXPECT_EQ(unasked_picture({.free = 80 * kMebi, .budget = 100 * kMebi, .held = 70 * kMebi}), 30 * kMebi);
  EXPECT_EQ(unasked_picture({.free = 80 * kMebi, .budget = 200 * kMebi, .held = 70 * kMebi}), 40 * kMebi);
  EXPECT_EQ(unasked_picture({.free = 80 * kMebi, .budget = 60 * kMebi, .held = 70 * kMebi}), 0u) << "it is used up";
}

}  // namespace
}  // namespace shoal
