// How ranks over Gloo settle who is to blame for a broken connection.
#include "comm/host/gloo_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <atomic>
#include <future>
#include <thread>

#include "comm/rendezvous/door.h"
#include "unit/comm/gloo_groups.h"

namespace shoal {
namespace {

using ::testing::AnyOf;
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
  auto world = world_of_one(store);
  store->set("failure", to_text(Failure{2, "reduce of y (#3)", "rank 1 died (gone)"}));
  const Failure settled = world->settle(kCut, {"channel//0", nullptr}, "gather of x (#1)");
  EXPECT_EQ(settled.reporter, 2);
  EXPECT_EQ(settled.cause, "rank 1 died (gone)");
}

TEST(GlooWorld, ARankThatCannotBeReachedIsNamedWithItsDoorWhenConnectingFails) {
  const auto store = make_hash_store();
  std::string closed;
  {
    const Door gone("127.0.0.1");
    closed = gone.at();
  }
  std::vector<std::string> said(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      GlooWorld::Options options = testing::gloo_options(rank, 2, std::chrono::seconds(4), store);
      options.places = {{0, "a", ""}, {1, "b", closed}};
      if (rank == 1) options.address = "192.0.2.1";  // nobody's: it cannot listen there
      try {
        const GlooWorld world(options);
      } catch (const std::exception& error) {
        said[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  // Whoever finds it out first says so for both.
  EXPECT_THAT(said[0],
              AnyOf(HasSubstr("rank 1 cannot be reached at " + closed + " (b) from 127.0.0.1: Connection refused"),
                    HasSubstr("over Gloo from 192.0.2.1: ")));
  EXPECT_THAT(said[1], HasSubstr("[comm rank 1] connecting: "));
}

// Answers but for set_once, as a server that is frozen when ranks want to write why they stop.
class StoreThatFreezes final : public c10d::HashStore {
 public:
  std::vector<uint8_t> compareSet(const std::string&, const std::vector<uint8_t>&,
                                  const std::vector<uint8_t>&) override {
    std::this_thread::sleep_for(std::chrono::seconds(6));
    return {};
  }
};

TEST(GlooWorld, WhoServesAStoreThatDoesNotAnswerIsNamedToo) {
  auto store = std::make_shared<C10dStore>(c10::make_intrusive<StoreThatFreezes>(), std::make_shared<TimedCalls>(),
                                           kDefaultTimeout);
  GlooWorld::Options options = testing::gloo_options(0, 1, kDefaultTimeout, store);
  options.store_host = 3;
  GlooWorld world(options);
  const LinkBroken late(LinkBroken::How::late, 2, "Timed out");
  const std::string cause = world.settle(late, {"channel//0", nullptr}, "gather of x (#1)").cause;
  EXPECT_THAT(cause, StartsWith("rank 2 did not arrive within 600 s."));
  EXPECT_THAT(cause, HasSubstr("rank 3 hangs, or the network to it is cut: the rendezvous store that it serves did not "
                               "answer within 3 s."));
}

// Answers nothing once it is frozen: its server is, or so busy with its end that this rank has not heard of it yet.
class StoreToFreeze final : public c10d::HashStore {
 public:
  bool check(const std::vector<std::string>& keys) override {
    if (frozen) std::this_thread::sleep_for(std::chrono::seconds(6));
    return c10d::HashStore::check(keys);
  }
  std::atomic<bool> frozen = false;
};

// What is found when the connection to a rank is closed and rank 3, which serves the store, says nothing.
std::string cause_when_closed(int peer) {
  const auto keys = c10::make_intrusive<StoreToFreeze>();
  const auto store = std::make_shared<C10dStore>(keys, std::make_shared<TimedCalls>(), kDefaultTimeout);
  GlooWorld::Options options = testing::gloo_options(0, 1, kDefaultTimeout, store);
  options.store_host = 3;
  GlooWorld world(options);
  keys->frozen = true;
  const LinkBroken closed(LinkBroken::How::closed, peer, "Connection closed by peer");
  return world.settle(closed, {"channel//0", nullptr}, "gather of x (#1)").cause;
}

TEST(GlooWorld, AFrozenRankClosesNothingSoWhoDidDied) {
  auto of_another = std::async(std::launch::async, cause_when_closed, 2);
  EXPECT_THAT(cause_when_closed(3), StartsWith("rank 3 died (Connection closed by peer)"));
  EXPECT_THAT(of_another.get(), StartsWith("rank 3 hangs, or the network to it is cut"));
}

std::string message_when_connecting(int rank, int world, const std::shared_ptr<C10dStore>& store) {
  try {
    GlooWorld(testing::gloo_options(rank, world, std::chrono::seconds(4), store));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(GlooWorld, WhoDoesNotConnectIsNamedByAllOthers) {
  auto store = make_hash_store();
  std::string other;
  std::thread rank_two([&] { other = message_when_connecting(2, 3, store); });
  const std::string own = message_when_connecting(0, 3, store);
  rank_two.join();
  const std::string cause = "rank 1 died or hangs: it joined the world and was not heard of for 4 s";
  EXPECT_THAT(own, StartsWith("[comm rank 0] connecting: " + cause));
  EXPECT_THAT(other, StartsWith("[comm rank 2] connecting: " + cause));
}

TEST(GlooWorld, APeerThatIsGoneIsFoundByAsking) {
  using namespace std::chrono_literals;
  const auto store = make_hash_store();
  std::unique_ptr<GlooWorld> other;
  std::thread rank_one([&] { other = std::make_unique<GlooWorld>(testing::gloo_options(1, 2, 20s, store)); });
  const auto world = std::make_shared<GlooWorld>(testing::gloo_options(0, 2, 20s, store));
  rank_one.join();
  const std::shared_ptr<Fate> fate = fate_of(world);
  EXPECT_EQ(fate->dead_peer(), "");
  other.reset();
  std::string cause;
  for (const auto deadline = std::chrono::steady_clock::now() + 20s;
       cause.empty() && std::chrono::steady_clock::now() < deadline;) {
    cause = fate->dead_peer();
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_THAT(cause, StartsWith("rank 1 died (or left: its connections are closed)."));
  EXPECT_FALSE(fate->failure());
}

TEST(GlooWorld, AFailureStaysAndClosesTheLinks) {
  auto world = world_of_one(make_hash_store());
  auto channel = world->open("x", Members::all(1, 0));
  EXPECT_EQ(world->fail({0, "", "first"}).cause, "first");
  EXPECT_EQ(world->fail({0, "", "second"}).cause, "first");
  EXPECT_THROW(channel.link->begin(), LinkBroken);
  EXPECT_THROW(world->open("y", Members::all(1, 0)), Error);
}

}  // namespace
}  // namespace shoal
