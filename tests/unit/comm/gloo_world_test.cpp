// How ranks over Gloo settle who is to blame for a broken connection.
#include "comm/gloo_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/comm/gloo_groups.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::unique_ptr<GlooWorld> world_of_one(const std::shared_ptr<C10dStore>& store) {
  return std::make_unique<GlooWorld>(testing::gloo_options(0, 1, kDefaultTimeout, store));
}
const LinkBroken kCut(LinkBroken::How::closed, 2, "Connection closed by peer");

TEST(GlooWorld, APeerThatSaysNothingDied) {
  auto world = world_of_one(make_hash_store());
  EXPECT_THAT(world->settle(kCut, {"channel//0", nullptr}, "gather of x (#1)").cause,
              StartsWith("rank 2 died (Connection closed by peer)"));
}

TEST(GlooWorld, APeerThatSaidSoLeft) {
  auto store = make_hash_store();
  store->set("left/channel//0/2", "left");
  EXPECT_THAT(world_of_one(store)->settle(kCut, {"channel//0", nullptr}, "gather of x (#1)").cause,
              StartsWith("rank 2 left"));
}

TEST(GlooWorld, WhatTheFirstRankWroteCounts) {
  auto store = make_hash_store();
  store->set("failure", to_text(Failure{2, "reduce of y (#3)", "rank 1 died (gone)"}));
  const Failure settled = world_of_one(store)->settle(kCut, {"channel//0", nullptr}, "gather of x (#1)");
  EXPECT_EQ(settled.reporter, 2);
  EXPECT_EQ(settled.cause, "rank 1 died (gone)");
}

TEST(GlooWorld, AFailureStaysAndClosesTheLinks) {
  auto world = world_of_one(make_hash_store());
  auto channel = world->open("x");
  EXPECT_EQ(world->fail({0, "", "first"}).cause, "first");
  EXPECT_EQ(world->fail({0, "", "second"}).cause, "first");
  EXPECT_THROW(channel.link->begin(), LinkBroken);
  EXPECT_THROW(world->open("y"), Error);
}

}  // namespace
}  // namespace shoal
