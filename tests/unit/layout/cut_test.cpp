#include "layout/cut.h"

#include <gtest/gtest.h>

#include <set>

namespace shoal {
namespace {

FlatLayout flat_of(int64_t numel, const Mesh& mesh) {
  FlatLayout flat;
  flat.numel = numel;
  cut_evenly(flat, mesh);
  return flat;
}

Mesh two_by_three() { return Mesh({{.name = "replica", .size = 2}, {.name = "shard", .size = 3}}); }

TEST(Cut, OnOneAxisARankHoldsThePartOfItsNumber) {
  const FlatLayout flat = flat_of(1000, 3);
  EXPECT_EQ(flat.numel, 1152);
  for (int rank = 0; rank < 3; ++rank) {
    for (const Over over : {Over::shard, Over::world}) {
      const Cut part = cut(flat, over, 3, rank);
      EXPECT_EQ(part.parts, 3);
      EXPECT_EQ(part.index, rank);
      EXPECT_EQ(part.begin, rank * 384);
      EXPECT_EQ(part.end, (rank + 1) * 384);
      EXPECT_TRUE(part.is_part());
    }
    const Cut whole = cut(flat, Over::nobody, 3, rank);
    EXPECT_EQ(whole.parts, 1);
    EXPECT_EQ(whole.begin, 0);
    EXPECT_EQ(whole.end, 1152);
    EXPECT_FALSE(whole.is_part());
  }
}

TEST(Cut, EveryElementHasOneRankThatSpeaksForItAndThatRankHoldsIt) {
  const Mesh mesh = two_by_three();
  const FlatLayout flat = flat_of(5000, mesh);
  const Stage stages[] = {
      0, 1, 2, 3, {3, {Over::shard, Over::shard, Over::shard}}, {1, {Over::shard, Over::world, Over::world}}};
  for (const Stage& stage : stages) {
    std::set<int64_t> begins;
    for (int rank = 0; rank < mesh.world(); ++rank) {
      const Cuts cuts(mesh, rank, stage);
      const Cut own = cuts.own(flat);
      EXPECT_EQ(own.numel() * mesh.world(), flat.numel);
      EXPECT_TRUE(begins.insert(own.begin).second);
      for (const Cut& held : {cuts.weights(flat), cuts.gradients(flat), cuts.states(flat)}) {
        EXPECT_LE(held.begin, own.begin);
        EXPECT_GE(held.end, own.end);
      }
    }
  }
}

TEST(Cut, ReplicasHoldTheSamePart) {
  const Mesh mesh = two_by_three();
  const FlatLayout flat = flat_of(768, mesh);
  EXPECT_EQ(cut(flat, Over::shard, mesh, 1).begin, cut(flat, Over::shard, mesh, 4).begin);
  EXPECT_EQ(cut(flat, Over::world, mesh, 1).index, 2);  // shard 1 of 3, replica 0 of 2
  EXPECT_EQ(cut(flat, Over::world, mesh, 4).index, 3);
}

TEST(Cut, APersistentFlatKeepsItsWeightsWhole) {
  FlatLayout flat = flat_of(768, 2);
  flat.persistent = true;
  const Cuts cuts(2, 1, 3);
  EXPECT_FALSE(cuts.weights(flat).is_part());
  EXPECT_TRUE(cuts.states(flat).is_part());
}

TEST(Cut, ACopyOverSeveralHostsIsCutSoThatEachHopYieldsElementsInOrder) {
  const Mesh mesh({{.name = "replica", .size = 2}, {.name = "span", .size = 3}, {.name = "shard", .size = 2}});
  const FlatLayout flat = flat_of(12 * 128, mesh);
  EXPECT_EQ(flat.rank_numel, 128);
  EXPECT_EQ(flat.shard_numel, 256);
  EXPECT_EQ(flat.inner_numel, 768);
  std::set<int64_t> begins;
  for (int rank = 0; rank < 12; ++rank) {
    const Cut world = cut(flat, Over::world, mesh, rank), shard = cut(flat, Over::shard, mesh, rank),
              inner = cut(flat, Over::inner, mesh, rank);
    EXPECT_TRUE(inner.begin <= shard.begin && shard.end <= inner.end);
    EXPECT_TRUE(shard.begin <= world.begin && world.end <= shard.end);
    begins.insert(world.begin);
    // Along each axis the parts follow each other.
    EXPECT_EQ(world.begin - shard.begin, mesh.at(rank, kReplica) * 128);
    EXPECT_EQ(shard.begin - inner.begin, mesh.at(rank, kSpan) * 256);
    EXPECT_EQ(inner.begin, mesh.at(rank, kShard) * 768);
  }
  EXPECT_EQ(begins.size(), 12u) << "each part has one rank";
}

TEST(Cut, RanksByPartAreThoseThatHoldThem) {
  EXPECT_EQ(ranks_by_part(3), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(ranks_by_part(two_by_three()), (std::vector<int>{0, 3, 1, 4, 2, 5}));
}

}  // namespace
}  // namespace shoal
