#include "checkpoint/save_memory.h"

#include <gtest/gtest.h>

namespace shoal::checkpoint {
namespace {

size_t with_free(const PictureNeed& need, size_t free_nbytes) {
  return picture_nbytes(need, [=] { return free_nbytes; });
}

TEST(SaveMemory, IsTheWholeStateWhereTheHostHasIt) {
  EXPECT_EQ(with_free({.state = 100'000, .least = 8192}, 1 << 30), 102'400u) << "in whole pages";
  EXPECT_EQ(with_free({.state = 0, .least = 0}, 1 << 30), 0u);
  EXPECT_EQ(with_free({.state = 100'000, .least = 8192}, 50'000), 49'152u) << "what there is";
  EXPECT_EQ(with_free({.state = 100'000, .least = 8192}, 0), 8192u) << "and never less than a save works with";
}

TEST(SaveMemory, IsAtMostWhatWasAskedFor) {
  EXPECT_EQ(with_free({.state = 100'000, .least = 8192, .asked = 20'000}, 1 << 30), 16'384u);
  EXPECT_EQ(with_free({.state = 100'000, .least = 8192, .asked = 1 << 30}, 0), 102'400u)
      << "and not more than it needs";
  EXPECT_EQ(with_free({.state = 100'000, .least = 8192, .asked = 1}, 0), 8192u);
}

TEST(SaveMemory, IsKeptFromSaveToSave) {
  EXPECT_EQ(with_free({.state = 100'000, .least = 8192, .held = 102'400}, 0), 102'400u);
  EXPECT_EQ(with_free({.state = 90'000, .least = 8192, .held = 102'400}, 0), 102'400u);
  EXPECT_EQ(with_free({.state = 100'000, .least = 8192, .held = 49'152}, 1 << 30), 49'152u) << "all that was free";
  EXPECT_EQ(with_free({.state = 100'000, .least = 65'536, .held = 49'152}, 1 << 30), 102'400u) << "too little now";
  EXPECT_EQ(with_free({.state = 100'000, .least = 8192, .asked = 20'000, .held = 16'384}, 1 << 30), 16'384u);
}

}  // namespace
}  // namespace shoal::checkpoint
