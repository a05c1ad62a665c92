// Every strip reaches every rank once, and each host once.
#include "comm/group/gather_paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Plays all ranks: what each sends is what its peer waits for, from it.
void check(const std::vector<int>& host_of) {
  const int world = static_cast<int>(host_of.size());
  std::vector<GatherPaths> paths;
  for (int rank = 0; rank < world; ++rank) paths.push_back(gather_paths(host_of, rank));
  for (int owner = 0; owner < world; ++owner) {
    std::vector<int> came(static_cast<size_t>(world)), reached(100);
    const auto send = [&](int from, int to) {
      ++came[to];
      EXPECT_EQ(paths[to].from[owner], from) << "strip of " << owner << " at " << to;
      if (host_of[from] != host_of[to]) ++reached[host_of[to]];
    };
    for (const int to : paths[owner].to) send(owner, to);
    for (int rank = 0; rank < world; ++rank) {
      for (const int to : paths[rank].pass_on[owner]) {
        EXPECT_EQ(paths[rank].from[owner], owner) << "what is passed on came from its owner";
        send(rank, to);
      }
    }
    for (int rank = 0; rank < world; ++rank) EXPECT_EQ(came[rank], rank == owner ? 0 : 1) << owner << " at " << rank;
    std::map<int, int> wanted;
    for (const int host : host_of) wanted[host] = host == host_of[owner] ? 0 : 1;
    for (const auto& [host, times] : wanted) EXPECT_EQ(reached[host], times) << "strip of " << owner;
    EXPECT_EQ(paths[owner].from[owner], owner);
  }
}

TEST(GatherPaths, EveryStripReachesEveryRankOnceAndEveryHostOnce) {
  for (const auto& host_of : std::vector<std::vector<int>>{{0},
                                                           {0, 0},
                                                           {0, 1},
                                                           {7, 3},
                                                           {0, 0, 0},
                                                           {0, 0, 1},
                                                           {0, 1, 0},
                                                           {1, 0, 0, 0},
                                                           {0, 0, 1, 1},
                                                           {0, 1, 0, 1},
                                                           {0, 1, 2, 0},
                                                           {0, 0, 0, 1, 1, 2, 2, 2, 2},
                                                           {5, 5, 5, 5, 5, 1, 1}}) {
    check(host_of);
  }
}

TEST(GatherPaths, RanksOfAHostShareTheWorkOfPassingOn) {
  const GatherPaths second = gather_paths({0, 0, 1, 1}, 1);
  EXPECT_THAT(second.to, ElementsAre(0, 3));
  EXPECT_THAT(second.from, ElementsAre(0, 1, 0, 3));
  EXPECT_THAT(second.pass_on[3], ElementsAre(0));
  EXPECT_THAT(second.pass_on[2], IsEmpty());
}

TEST(GatherPaths, OneRankAHostOrOneHostNeedsNoSecondStep) {
  EXPECT_FALSE(some_host_has_several({0}));
  EXPECT_FALSE(some_host_has_several({0, 0, 0}));
  EXPECT_FALSE(some_host_has_several({2, 0, 1}));
  EXPECT_TRUE(some_host_has_several({0, 1, 0}));
}

}  // namespace
}  // namespace shoal
