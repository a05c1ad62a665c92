#include "shard/carry.h"

#include <gtest/gtest.h>

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

TEST(Carry, AMeshOfOtherRanksThanTheChannelsIsRefused) {
  const std::unique_ptr<Group> alone = make_single_group();
  EXPECT_THROW(AxisGroups(*alone, 2), BrokenPromise);
}

}  // namespace
}  // namespace shoal
