// Who is found silent while ranks connect.
#include "comm/rendezvous/roll_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/comm/memory_store.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const auto kNothing = [] {};
const auto kYes = []() -> std::optional<bool> { return true; };
const auto kNo = []() -> std::optional<bool> { return false; };
const auto kNotYet = []() -> std::optional<bool> { return std::nullopt; };
constexpr auto kSilence = std::chrono::seconds(3);  // half of it is what a living rank may be late on a busy machine

TEST(RollCall, AllConnectedIsAllConnected) {
  testing::MemoryStore store;
  RollCall zero(store, 0, 2, kSilence), one(store, 1, 2, kSilence);
  std::thread other([&] { EXPECT_TRUE(one.wait(kYes, kNothing).all_connected()); });
  EXPECT_TRUE(zero.wait(kYes, kNothing).all_connected());
  other.join();
}

// A rank that died, one that never came, and one that lives and is still connecting.
TEST(RollCall, SilentRanksAreNamedAndLivingOnesAreNot) {
  testing::MemoryStore store;
  RollCall zero(store, 0, 4, kSilence), three(store, 3, 4, kSilence);
  { RollCall died(store, 1, 4, kSilence); }
  const auto verdict = zero.wait(kNotYet, kNothing);
  EXPECT_THAT(verdict.silent, ElementsAre(1, 2));
  EXPECT_FALSE(verdict.all_connected());
}

TEST(RollCall, ARankThatDiesAfterItConnectedIsSilentToo) {
  testing::MemoryStore store;
  RollCall zero(store, 0, 2, kSilence);
  store.set("roll/1/alive", "7");
  store.set("roll/1/connected", "yes");
  EXPECT_THAT(zero.wait(kNo, kNothing).silent, ElementsAre(1));
}

TEST(RollCall, WhenAllLiveTheOneThatCouldNotConnectIsNamed) {
  testing::MemoryStore store;
  RollCall zero(store, 0, 2, kSilence), one(store, 1, 2, kSilence);
  store.set("roll/1/connected", "no");
  const auto verdict = zero.wait(kYes, kNothing);
  EXPECT_THAT(verdict.silent, IsEmpty());
  EXPECT_EQ(verdict.lost, 1);
}

TEST(RollCall, LookingAroundEndsTheWait) {
  testing::MemoryStore store;
  RollCall zero(store, 0, 2, kSilence);
  EXPECT_THROW(zero.wait(kYes, [] { throw std::runtime_error("another rank gave up"); }), std::runtime_error);
}

}  // namespace
}  // namespace shoal
