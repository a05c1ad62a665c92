#include <gtest/gtest.h>

#include <string>

#include "shoal/error.h"
#include "shoal/group.h"

namespace shoal {
namespace {

TEST(MakeThreadGroups, AWorldOfNoRanksIsAMistake) {
  for (const int size : {0, -1}) {
    try {
      make_thread_groups(size);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()),
                "[comm threads] " + std::to_string(size) + " is no number of ranks. Give at least 1.");
    }
  }
}

TEST(MakeThreadGroups, GivesEachRankItsPlace) {
  const auto groups = make_thread_groups(3);
  ASSERT_EQ(groups.size(), 3u);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(groups[static_cast<size_t>(rank)]->rank(), rank);
    EXPECT_EQ(groups[static_cast<size_t>(rank)]->members(), (std::vector<int>{0, 1, 2}));
  }
}

}  // namespace
}  // namespace shoal
