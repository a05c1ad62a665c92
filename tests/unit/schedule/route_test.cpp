#include "schedule/route.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace shoal {
namespace {

FlatLayout flat_of(int64_t numel, const Mesh& mesh, DType dtype = DType::bf16) {
  FlatLayout flat;
  flat.dtype = dtype;
  flat.numel = numel;
  cut_evenly(flat, mesh);
  return flat;
}

Mesh two_hosts() { return Mesh({{.name = "replica", .size = 2}, {.name = "shard", .size = 4}}); }

std::string text_of(const FlatRoutes& routes) {
  return "gather\n" + to_text(routes.gather) + "reduce\n" + to_text(routes.reduce) + "share\n" + to_text(routes.share) +
         "publish\n" + to_text(routes.publish);
}

TEST(Route, OnOneAxisEveryWayIsOneHop) {
  const FlatLayout flat = flat_of(1024, 4);
  const auto at = [&](int stage) { return text_of(routes_of(flat, {.stage = stage}, 4)); };
  EXPECT_EQ(at(0),
            "gather\nreduce\nreduce_scatter along shard of 4: 256 bf16 each\n"
            "share\nall_gather along shard of 4: 256 bf16 each\npublish\n");
  const char* const published =
      "gather\nreduce\nreduce_scatter along shard of 4: 256 bf16 each\n"
      "share\npublish\nall_gather along shard of 4: 256 bf16 each\n";
  EXPECT_EQ(at(1), published);
  EXPECT_EQ(at(2), published);
  EXPECT_EQ(at(3),
            "gather\nall_gather along shard of 4: 256 bf16 each\n"
            "reduce\nreduce_scatter along shard of 4: 256 bf16 each\nshare\npublish\n");
}

TEST(Route, FrozenFlatsAreOnlyGathered) {
  FlatLayout flat = flat_of(1024, 4);
  flat.trainable = false;
  EXPECT_EQ(text_of(routes_of(flat, {.stage = 3}, 4)),
            "gather\nall_gather along shard of 4: 256 bf16 each\nreduce\nshare\npublish\n");
}

TEST(Route, StatesOverTheWorldAndWeightsOverAHost) {
  const Mesh mesh = two_hosts();
  const FlatLayout flat = flat_of(1024, mesh);
  const Stage stage(3, {Over::shard, Over::world, Over::world});
  EXPECT_EQ(text_of(routes_of(flat, {.stage = stage}, mesh)),
            "gather\nall_gather along shard of 4: 256 bf16 each\n"
            "reduce\nreduce_scatter along world of 8: 128 bf16 each\n"
            "share\n"
            "publish\nall_gather along replica of 2: 128 bf16 each\n");
}

TEST(Route, EverythingOverAHostSumsOverTheOthersToo) {
  const Mesh mesh = two_hosts();
  const FlatLayout flat = flat_of(1024, mesh);
  const Stage stage(3, {Over::shard, Over::shard, Over::shard});
  EXPECT_EQ(text_of(routes_of(flat, {.stage = stage}, mesh)),
            "gather\nall_gather along shard of 4: 256 bf16 each\n"
            "reduce\nreduce_scatter along world of 8: 128 bf16 each\n"
            "share\nall_gather along replica of 2: 128 bf16 each\npublish\n");
}

TEST(Route, SumsOfAGroupTravelWhereTheyAreFewerBytesThanLeaves) {
  const Mesh mesh = two_hosts();
  const FlatLayout bf16 = flat_of(1024, mesh);
  const Stage stage(3, {Over::shard, Over::shard, Over::shard});
  const auto reduce = [&](int64_t group, const Mesh& on) {
    return to_text(routes_of(flat_of(1024, on), {.stage = stage, .fold_group = group}, on).reduce);
  };
  EXPECT_EQ(reduce(4, mesh),
            "reduce_scatter along shard of 4: 256 bf16 each\nreduce_scatter along replica of 2: 128 fp32 each\n");
  EXPECT_EQ(reduce(2, mesh), "reduce_scatter along world of 8: 128 bf16 each\n") << "hosts would send two sums each";
  EXPECT_EQ(reduce(8, mesh), "reduce_scatter along world of 8: 128 bf16 each\n");
  const Mesh pairs({{.name = "replica", .size = 4}, {.name = "shard", .size = 2}});
  EXPECT_EQ(reduce(2, pairs), "reduce_scatter along world of 8: 128 bf16 each\n") << "two leaves are as short as a sum";
  EXPECT_EQ(sums_nbytes(routes_of(bf16, {.stage = stage, .fold_group = 4}, mesh).reduce), 256u * 4);
  EXPECT_EQ(sums_nbytes(routes_of(bf16, {.stage = stage}, mesh).reduce), 0u);
  // Stages that add up a rank's leaves first have no leaves to group.
  const Stage whole(1, {Over::nobody, Over::nobody, Over::shard});
  EXPECT_EQ(to_text(routes_of(bf16, {.stage = whole, .accumulation_steps = 2, .fold_group = 4}, mesh).reduce),
            "reduce_scatter along world of 8: 128 fp32 each\n");
}

TEST(Route, ACopyOverSeveralHostsIsGatheredBetweenThemFirst) {
  const Mesh mesh({{.name = "replica", .size = 2}, {.name = "span", .size = 2}, {.name = "shard", .size = 2}});
  const Stage stage(3, {Over::shard, Over::shard, Over::shard});
  EXPECT_EQ(text_of(routes_of(flat_of(1024, mesh), {.stage = stage}, mesh)),
            "gather\nall_gather along span of 2: 256 bf16 each\nall_gather along shard of 2: 512 bf16 each\n"
            "reduce\nreduce_scatter along world of 8: 128 bf16 each\n"
            "share\nall_gather along replica of 2: 128 bf16 each\npublish\n");
}

// The wire of hosts' sums, whatever the stage cuts: 68 bytes for each 128 elements.
TEST(Route, QuantizedSumsGoBetweenHostsInBlocks) {
  const Mesh mesh = two_hosts();
  FlatLayout flat = flat_of(1024, mesh);
  const auto reduce = [&](const GradientOptions& options, const Mesh& on) {
    return routes_of(flat_of(1024, on), options, on).reduce;
  };
  const GradientOptions stage3{.stage = 3, .sum_bits = 4};
  EXPECT_EQ(to_text(reduce(stage3, mesh)),
            "reduce_scatter along shard of 4: 256 bf16 each\n"
            "reduce_scatter along replica of 2: 128 fp32 each, in blocks of int4\n");
  EXPECT_EQ(reduce(stage3, mesh)[1].sent_nbytes(), 68u);
  EXPECT_EQ(reduce({.stage = 2, .sum_bits = 8}, mesh)[1].sent_nbytes(), 132u);
  EXPECT_EQ(to_text(reduce({.stage = 2, .sum_bits = 4}, mesh)), to_text(reduce(stage3, mesh)));
  const Mesh pairs({{.name = "replica", .size = 4}, {.name = "shard", .size = 2}});
  EXPECT_EQ(reduce(stage3, pairs).size(), 2u) << "also where sums are as long as leaves";
  EXPECT_EQ(to_text(reduce(stage3, 8)), "reduce_scatter along shard of 8: 128 bf16 each\n") << "one host is exact";
  flat.persistent = true;
  EXPECT_EQ(to_text(routes_of(flat, stage3, mesh).reduce),
            "reduce_scatter along shard of 4: 256 bf16 each\nreduce_scatter along replica of 2: 128 fp32 each\n");
}

TEST(Route, RanksAlongTheWorldStandByTheirParts) {
  const Mesh mesh({{.name = "replica", .size = 2}, {.name = "shard", .size = 3}});
  EXPECT_EQ(ranks_along(kWorld, mesh, 1), (std::vector<int>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(ranks_along(kReplica, mesh, 1), (std::vector<int>{1, 4}));
}

TEST(Route, EverythingOverTheWorldGathersAlongReplicasFirst) {
  const Mesh mesh = two_hosts();
  const FlatLayout flat = flat_of(1024, mesh);
  const Route route = routes_of(flat, {.stage = 3}, mesh).gather;
  EXPECT_EQ(to_text(route),
            "all_gather along replica of 2: 128 bf16 each\nall_gather along shard of 4: 256 bf16 each\n");
  EXPECT_EQ(route[0].yields, Over::shard);
  EXPECT_EQ(route[1].yields, Over::nobody);
  EXPECT_EQ(route[0].sent_nbytes(), 128u * 2);
  EXPECT_EQ(sent_nbytes(route), 128u * 2 + 3 * 256 * 2);
}

TEST(Route, GathersDoNotCut) {
  EXPECT_THROW(gather_route(flat_of(1024, 4), Over::nobody, Over::world, 4, {}), BrokenPromise);
}

TEST(Route, OtherAxesHaveNoRouteYet) {
  const Mesh mesh({{.name = "shard", .size = 2}, {.name = "sequence", .size = 2, .own_samples = false}});
  EXPECT_THROW(routes_of(flat_of(1024, mesh), {.stage = 3}, mesh), BrokenPromise);
}

}  // namespace
}  // namespace shoal
