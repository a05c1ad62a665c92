#include "shard/carry.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/check.h"
#include "unit/comm/rank_threads.h"

namespace shoal {
namespace {

FlatLayout flat_over(int world) {
  FlatLayout flat;
  flat.numel = 256;
  cut_evenly(flat, world);
  return flat;
}

TEST(Carry, AGatherBringsEveryRanksPartToItsPlace) {
  testing::run_ranks(3, [](Group& group) {
    const FlatLayout flat = flat_over(3);
    const Cuts cuts(3, group.rank(), 3);
    const AxisGroups groups(group, 3);
    const Cut mine = cuts.weights(flat);
    const std::vector<float> part(static_cast<size_t>(mine.numel()), static_cast<float>(group.rank() + 1));
    std::vector<float> whole(static_cast<size_t>(flat.numel));
    carry_gather(gather_route(flat, mine.over, Over::nobody, 3, {DType::f32}), groups, cuts, flat,
                 {.subject = {"gather", "u"}, .shard = part.data(), .whole = whole.data(), .keep = nullptr})
        .wait();
    for (size_t at = 0; at < whole.size(); ++at) {
      ASSERT_EQ(whole[at], static_cast<float>(static_cast<int64_t>(at) / mine.numel() + 1));
    }
  });
}

TEST(Carry, OnAMeshOfTwoAxesElementsComeInOrder) {
  testing::run_ranks(4, [](Group& group) {
    const Mesh mesh({{.name = "replica", .size = 2}, {.name = "shard", .size = 2}});
    FlatLayout flat;
    flat.numel = 512;
    cut_evenly(flat, mesh);
    const Cuts cuts(mesh, group.rank(), 3);
    const AxisGroups groups(group, mesh);
    const Cut mine = cuts.weights(flat);
    std::vector<float> part;
    for (int64_t at = mine.begin; at < mine.end; ++at) part.push_back(static_cast<float>(at));
    std::vector<float> whole(static_cast<size_t>(flat.numel), -1.0f);
    carry_gather(gather_route(flat, Over::world, Over::nobody, mesh, {DType::f32}), groups, cuts, flat,
                 {.subject = {"gather", "u"}, .shard = part.data(), .whole = whole.data(), .keep = nullptr})
        .wait();
    for (size_t at = 0; at < whole.size(); ++at) ASSERT_EQ(whole[at], static_cast<float>(at));
    // To the part over the shard axis alone.
    const Cut shard = cuts.over(flat, Over::shard);
    std::vector<float> half(static_cast<size_t>(shard.numel()), -1.0f);
    carry_gather(gather_route(flat, Over::world, Over::shard, mesh, {DType::f32}), groups, cuts, flat,
                 {.subject = {"gather", "u"}, .shard = part.data(), .whole = half.data(), .keep = nullptr})
        .wait();
    for (size_t at = 0; at < half.size(); ++at) {
      ASSERT_EQ(half[at], static_cast<float>(shard.begin + static_cast<int64_t>(at)));
    }
  });
}

TEST(Carry, AReductionLeavesEachRankItsPartOfTheSum) {
  testing::run_ranks(2, [](Group& group) {
    const FlatLayout flat = flat_over(2);
    const Cut mine = Cuts(2, group.rank(), 2).gradients(flat);
    std::vector<float> whole(static_cast<size_t>(flat.numel));
    for (size_t at = 0; at < whole.size(); ++at) whole[at] = static_cast<float>(at) + static_cast<float>(group.rank());
    std::vector<float> part(static_cast<size_t>(mine.numel()));
    ReduceScatter args;
    args.subject = {"reduce", "u"};
    args.whole = whole.data();
    args.shard = part.data();
    carry_reduce(routes_of(flat, {.stage = 2}, 2).reduce, AxisGroups(group, 2), std::move(args)).wait();
    for (size_t at = 0; at < part.size(); ++at) {
      ASSERT_EQ(part[at], 2 * (static_cast<float>(mine.begin) + static_cast<float>(at)) + 1);
    }
  });
}

// Values whose fp32 sum shows the order in which they are added.
float leaf_of(int rank, size_t at) {
  return rank == 0 ? 1.0e8f : rank == 1 ? -1.0e8f : 0.1f * static_cast<float>(at % 7 + 1);
}

FlatLayout flat_on(const Mesh& mesh) {
  FlatLayout flat;
  flat.numel = 128 * mesh.world();
  cut_evenly(flat, mesh);
  return flat;
}

TEST(Carry, LeavesAreAddedInTheOrderOfRanksOnEveryMesh) {
  for (const auto& [replicas, shards] : {std::pair{2, 3}, {3, 2}, {4, 1}, {2, 2}}) {
    const Mesh mesh({{.name = "replica", .size = replicas}, {.name = "shard", .size = shards}});
    testing::run_ranks(mesh.world(), [&](Group& group) {
      const FlatLayout flat = flat_on(mesh);
      const Cut mine = Cuts(mesh, group.rank(), 3).own(flat);
      std::vector<float> whole;
      for (int64_t at = 0; at < flat.numel; ++at) whole.push_back(leaf_of(group.rank(), static_cast<size_t>(at)));
      std::vector<float> part(static_cast<size_t>(mine.numel()));
      ReduceScatter args;
      args.subject = {"reduce", "u"};
      args.whole = whole.data();
      args.shard = part.data();
      carry_reduce(reduce_route(flat, mesh, {DType::f32}), AxisGroups(group, mesh), std::move(args)).wait();
      for (size_t at = 0; at < part.size(); ++at) {
        const size_t element = static_cast<size_t>(mine.begin) + at;
        float sum = leaf_of(0, element);
        for (int rank = 1; rank < mesh.world(); ++rank) sum += leaf_of(rank, element);
        ASSERT_EQ(part[at], sum) << mesh.to_text();
      }
    });
  }
}

TEST(Carry, SumsOfGroupsAreAddedInTheOrderOfGroups) {
  const Mesh mesh({{.name = "replica", .size = 2}, {.name = "shard", .size = 3}});
  testing::run_ranks(6, [&](Group& group) {
    const FlatLayout flat = flat_on(mesh);
    const Cut mine = Cuts(mesh, group.rank(), 3).own(flat);
    std::vector<float> whole;
    for (int64_t at = 0; at < flat.numel; ++at) whole.push_back(leaf_of(5 - group.rank(), static_cast<size_t>(at)));
    std::vector<float> part(static_cast<size_t>(mine.numel()), 0.5f);
    const Route route = reduce_route(flat, mesh, {DType::f32}, Travel::sums);
    const auto sums = Slab::create(sums_nbytes(route), Slab::Backing::anonymous, std::make_shared<Ledger>(),
                                   MemoryKind::reduce_slots);
    ReduceScatter args;
    args.subject = {"reduce", "u"};
    args.whole = whole.data();
    args.shard = part.data();
    args.carry = 1;
    args.groups.size = 3;
    const AxisGroups groups(group, mesh);
    carry_reduce(route, groups, std::move(args), {sums}).wait();
    for (size_t at = 0; at < part.size(); ++at) {
      const size_t element = static_cast<size_t>(mine.begin) + at;
      float sum = 0.5f;
      for (const int first : {0, 3}) {
        float of_group = leaf_of(5 - first, element);
        for (int rank = first + 1; rank < first + 3; ++rank) of_group += leaf_of(5 - rank, element);
        sum += of_group;
      }
      ASSERT_EQ(part[at], sum);
    }
    // What the axes carried is counted, beside the channel.
    EXPECT_EQ(groups.traffic().sent_nbytes, sent_nbytes(route));
  });
}

TEST(Carry, AMeshOfOtherRanksThanTheChannelsIsRefused) {
  const std::unique_ptr<Group> alone = make_single_group();
  EXPECT_THROW(AxisGroups(*alone, 2), BrokenPromise);
}

}  // namespace
}  // namespace shoal
