#include "layout/mesh.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace shoal {
namespace {

Mesh hosts() { return Mesh({{.name = "replica", .size = 2}, {.name = "shard", .size = 3}}); }

TEST(Mesh, ANumberOfRanksIsOneAxis) {
  const Mesh mesh = 4;
  EXPECT_EQ(mesh.world(), 4);
  EXPECT_EQ(mesh.data_ranks(), 4);
  EXPECT_EQ(mesh.size_of(kShard), 4);
  EXPECT_EQ(mesh.size_of(kReplica), 1);
  EXPECT_EQ(mesh.at(3, kShard), 3);
  EXPECT_EQ(mesh.at(3, kReplica), 0);
  EXPECT_EQ(mesh.along(kShard, 2), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(mesh.along(kReplica, 2), std::vector<int>{2});
  EXPECT_EQ(mesh.to_text(), "4");
  EXPECT_EQ(Mesh().world(), 1);
}

TEST(Mesh, RanksThatFollowEachOtherDifferInTheLastAxisFirst) {
  EXPECT_EQ(hosts().place_of(0), (Place{{0, 0}}));
  EXPECT_EQ(hosts().place_of(2), (Place{{0, 2}}));
  EXPECT_EQ(hosts().place_of(3), (Place{{1, 0}}));
  EXPECT_EQ(hosts().along(kShard, 4), (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(hosts().along(kReplica, 4), (std::vector<int>{1, 4}));
  EXPECT_EQ(hosts().to_text(), "replica 2 x shard 3");
}

TEST(Mesh, PlaceAndRankAreEachOthersInverse) {
  const Mesh mesh({{.name = "replica", .size = 2}, {.name = "shard", .size = 3}, {.name = "other", .size = 2}});
  for (int rank = 0; rank < mesh.world(); ++rank) EXPECT_EQ(mesh.rank_of(mesh.place_of(rank)), rank);
  EXPECT_THROW(mesh.place_of(12), BrokenPromise);
  EXPECT_THROW(mesh.place_of(-1), BrokenPromise);
  EXPECT_THROW(mesh.rank_of({{0, 3, 0}}), BrokenPromise);
  EXPECT_THROW(mesh.rank_of({{0, 0}}), BrokenPromise);
}

TEST(Mesh, AxesThatShareSamplesAreNoDataRanks) {
  const Mesh mesh({{.name = "shard", .size = 3}, {.name = "sequence", .size = 2, .own_samples = false}});
  EXPECT_EQ(mesh.world(), 6);
  EXPECT_EQ(mesh.data_ranks(), 3);
  EXPECT_EQ(mesh.data_rank(4), 2);
  EXPECT_EQ(mesh.data_rank(5), 2);
  EXPECT_EQ(mesh.first_of_data_ranks(), (std::vector<int>{0, 2, 4}));
}

TEST(Mesh, DataRanksAreCountedRowByRow) {
  const Mesh mesh({{.name = "replica", .size = 2},
                   {.name = "sequence", .size = 2, .own_samples = false},
                   {.name = "shard", .size = 3}});
  EXPECT_EQ(mesh.data_ranks(), 6);
  EXPECT_EQ(mesh.data_rank(2), 2);
  EXPECT_EQ(mesh.data_rank(5), 2);
  EXPECT_EQ(mesh.data_rank(11), 5);
  EXPECT_EQ(mesh.first_of_data_ranks(), (std::vector<int>{0, 1, 2, 6, 7, 8}));
}

TEST(Mesh, AnAxisHasARank) { EXPECT_THROW(Mesh(0), BrokenPromise); }

}  // namespace
}  // namespace shoal
