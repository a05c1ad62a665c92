#include "forecast/link_time.h"

#include <gtest/gtest.h>

#include "unit/forecast/shapes.h"

namespace shoal::forecast {
namespace {

using testing::four_gpus;

Mesh replicas(int replica, int shard) { return Mesh({{std::string(kReplica), replica}, {std::string(kShard), shard}}); }

Hop hop_of(Hop::Verb verb, std::string_view axis, int ranks, int64_t part) {
  return {
      .verb = verb, .axis = axis, .ranks = ranks, .part_numel = part, .yields = Over::nobody, .wire = {DType::bf16}};
}

// All of a link, no latency.
Calibration plain() {
  Calibration by;
  by.inside = by.between = 1;
  return by;
}
Cluster without_latency(Cluster cluster) {
  cluster.inside.latency = cluster.between.latency = 0;
  return cluster;
}

TEST(LinkTime, KnowsHowGroupsStandOnHosts) {
  const GroupPlaces world = places_of(Mesh(16), kShard, 8);
  EXPECT_EQ(world.hosts, 2);
  EXPECT_EQ(world.ranks_per_host, 8);
  EXPECT_EQ(world.groups_per_host, 1);
  const GroupPlaces shard = places_of(replicas(2, 8), kShard, 8);
  EXPECT_EQ(shard.hosts, 1);
  EXPECT_EQ(shard.groups_per_host, 1);
  const GroupPlaces replica = places_of(replicas(2, 8), kReplica, 8);
  EXPECT_EQ(replica.hosts, 2);
  EXPECT_EQ(replica.ranks_per_host, 1);
  EXPECT_EQ(replica.groups_per_host, 8);
  const GroupPlaces two = places_of(replicas(4, 4), kReplica, 8);
  EXPECT_EQ(two.hosts, 2);
  EXPECT_EQ(two.ranks_per_host, 2);
  EXPECT_EQ(two.groups_per_host, 4);
  const GroupPlaces all = places_of(replicas(2, 8), kWorld, 8);
  EXPECT_EQ(all.hosts, 2);
  EXPECT_EQ(all.ranks_per_host, 8);
  EXPECT_EQ(places_of(Mesh(3), kShard, 8).hosts, 1);
  EXPECT_EQ(places_of(Mesh(9), kShard, 8).hosts, 2);
}

TEST(LinkTime, AGatherPassesAHostsBorderOnce) {
  const Cluster cluster = without_latency(four_gpus());
  const LinkUse use = link_use(hop_of(Hop::Verb::all_gather, kShard, 4, 1'000'000), Mesh(4), cluster, plain(), true);
  EXPECT_EQ(use.path, Path::between);
  EXPECT_DOUBLE_EQ(use.host_nbytes, 2 * 2e6) << "the parts of the other host's two ranks";
  EXPECT_DOUBLE_EQ(use.seconds, 4e6 / 50e9);
}

TEST(LinkTime, AnExchangeSendsEachStripToItsOwner) {
  const Cluster cluster = without_latency(four_gpus());
  const Hop hop = hop_of(Hop::Verb::reduce_scatter, kShard, 4, 1'000'000);
  const LinkUse exchange = link_use(hop, Mesh(4), cluster, plain(), true);
  const LinkUse ring = link_use(hop, Mesh(4), cluster, plain(), false);
  EXPECT_DOUBLE_EQ(exchange.host_nbytes, 2 * ring.host_nbytes) << "as many times more as the host has ranks";
  EXPECT_DOUBLE_EQ(exchange.seconds, 2 * ring.seconds);
}

TEST(LinkTime, GroupsOfAHostShareItsNetwork) {
  const Cluster cluster = without_latency(four_gpus());
  const LinkUse use =
      link_use(hop_of(Hop::Verb::all_gather, kReplica, 2, 1'000'000), replicas(2, 2), cluster, plain(), true);
  EXPECT_DOUBLE_EQ(use.host_nbytes, 2 * 2e6) << "two groups, a part each";
  const LinkUse inside =
      link_use(hop_of(Hop::Verb::all_gather, kShard, 2, 1'000'000), replicas(2, 2), cluster, plain(), true);
  EXPECT_EQ(inside.path, Path::inside);
  EXPECT_DOUBLE_EQ(inside.seconds, 2e6 / 450e9);
  EXPECT_DOUBLE_EQ(inside.host_nbytes, 0);
}

TEST(LinkTime, OneRankSendsNothing) {
  const LinkUse use =
      link_use(hop_of(Hop::Verb::all_gather, kShard, 1, 1'000'000), Mesh(1), four_gpus(), plain(), true);
  EXPECT_EQ(use.path, Path::none);
  EXPECT_DOUBLE_EQ(use.seconds, 0);
}

TEST(LinkTime, WireAndLatencyCount) {
  const Hop hop = hop_of(Hop::Verb::all_gather, kShard, 4, 1'000'000);
  const Cluster cluster = four_gpus();
  const double whole = link_use(hop, Mesh(4), without_latency(cluster), plain(), true).seconds;
  EXPECT_DOUBLE_EQ(link_use(hop, Mesh(4), without_latency(cluster), plain(), true, 0.5).seconds, whole / 2);
  EXPECT_DOUBLE_EQ(link_use(hop, Mesh(4), cluster, plain(), true).seconds,
                   whole + 2 * cluster.inside.latency + 2 * cluster.between.latency);
}

}  // namespace
}  // namespace shoal::forecast
