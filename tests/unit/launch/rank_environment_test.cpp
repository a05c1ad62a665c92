#include "launch/rank_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shoal/error.h"

namespace shoal::launch {
namespace {

using ::testing::UnorderedElementsAre;

TEST(RankEnvironment, HasTorchrunsVariablesOverTheInheritedOnes) {
  EXPECT_THAT(
      rank_environment({"PATH=/bin", "RANK=9", "OMP_NUM_THREADS=8", "EMPTY="},
                       {.rank = 1, .ranks = 3, .port = 1234, .threads = 2}),
      UnorderedElementsAre("PATH=/bin", "EMPTY=", "RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=3", "LOCAL_WORLD_SIZE=3",
                           "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1234", "OMP_NUM_THREADS=2"));
}

TEST(RankEnvironment, LeavesOutHowAnotherLauncherCounts) {
  const auto environment =
      rank_environment({"TORCHELASTIC_USE_AGENT_STORE=True", "OMPI_COMM_WORLD_RANK=3", "OMPI_OTHER=1"}, {});
  EXPECT_THAT(environment, ::testing::Contains("OMPI_OTHER=1"));
  for (const std::string& entry : environment) {
    EXPECT_FALSE(entry.starts_with("TORCHELASTIC_") || entry.starts_with("OMPI_COMM_WORLD_")) << entry;
  }
}

TEST(RankEnvironment, TakesMoreVariablesBeforeItsOwn) {
  const auto environment = rank_environment({"A=1"}, {}, {{"A", "2"}, {"OMP_NUM_THREADS", "7"}});
  EXPECT_THAT(environment, ::testing::Contains("A=2"));
  EXPECT_THAT(environment, ::testing::Contains("OMP_NUM_THREADS=7"));
  EXPECT_THAT(environment, ::testing::Not(::testing::Contains("A=1")));
}

TEST(ThreadsOfRank, SharesTheCoresUnlessToldOtherwise) {
  EXPECT_EQ(threads_of_rank(0, nullptr, 8, 2), 4);
  EXPECT_EQ(threads_of_rank(0, "", 8, 3), 2);
  EXPECT_EQ(threads_of_rank(0, nullptr, 2, 4), 1);
  EXPECT_EQ(threads_of_rank(0, "6", 8, 2), 6);
  EXPECT_EQ(threads_of_rank(0, "6,2", 8, 2), 6);
  EXPECT_EQ(threads_of_rank(3, "6", 8, 2), 3);
  EXPECT_THROW(threads_of_rank(0, "many", 8, 2), Error);
  EXPECT_THROW(threads_of_rank(0, "0", 8, 2), Error);
}

}  // namespace
}  // namespace shoal::launch
