// What processes of one host share, with threads or one thread in their place.
#include "comm/host/shm_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "unit/comm/memory_store.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

ShmWorld::Options options(int rank, std::shared_ptr<KeyStore> store, pid_t other = getpid()) {
  return {rank, 300ms, {getpid(), other}, std::move(store)};
}

TEST(ShmWorld, TheFirstFailureIsTheOneThatAllSee) {
  auto store = std::make_shared<testing::MemoryStore>();
  ShmWorld zero(options(0, store)), one(options(1, store));
  EXPECT_FALSE(zero.failure());
  one.fail({1, "gather of x (#1)", "rank 1 gave up: no"});
  zero.fail({0, "", "too late"});
  EXPECT_EQ(zero.failure()->cause, "rank 1 gave up: no");
  EXPECT_EQ(zero.failure()->at, "gather of x (#1)");
  EXPECT_EQ(zero.failure()->reporter, 1);
}

TEST(ShmWorld, SegmentsAreSharedAndToldApart) {
  auto store = std::make_shared<testing::MemoryStore>();
  ShmWorld zero(options(0, store)), one(options(1, store));
  auto a = zero.open_channel("x", 100, 0), b = zero.open_channel("x", 100, 0);
  auto a1 = one.open_channel("x", 100, 0), b1 = one.open_channel("x", 100, 0);
  a.data()[7] = std::byte{1};
  b.data()[7] = std::byte{2};
  EXPECT_EQ(a1.data()[7], std::byte{1});
  EXPECT_EQ(b1.data()[7], std::byte{2});
}

TEST(ShmWorld, ASegmentThatRankZeroHasClosedIsNotMistakenForAnother) {
  auto store = std::make_shared<testing::MemoryStore>();
  ShmWorld zero(options(0, store)), one(options(1, store));
  zero.open_segment("gone", 100, 0);
  auto other = zero.open_segment("other", 100, 0);  // takes the same fd
  EXPECT_THROW(one.open_segment("gone", 100, 0), Error);
}

TEST(ShmWorld, ASegmentThatNeverComesNamesRankZero) {
  auto store = std::make_shared<testing::MemoryStore>();
  ShmWorld zero(options(0, store)), one(options(1, store));
  try {
    one.open_segment("never", 100, 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("opening never: rank 0 did not arrive within 0.3 s"));
  }
}

TEST(ShmWorld, ADeadProcessIsNoticedBeforeAnyoneHasReapedIt) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  auto store = std::make_shared<testing::MemoryStore>();
  ShmWorld zero(options(0, store, child));
  EXPECT_EQ(zero.dead_peer(), "");
  kill(child, SIGKILL);
  for (int i = 0; i < 20000 && zero.dead_peer().empty(); ++i) usleep(1000);
  EXPECT_THAT(zero.dead_peer(), HasSubstr("rank 1 died (process " + std::to_string(child) + " is gone)"));
  waitpid(child, nullptr, 0);
  EXPECT_THAT(zero.dead_peer(), HasSubstr("rank 1 died"));
}

TEST(ShmWorld, ARankZeroThatDiesWhileASegmentIsOpenedIsNamedThoughTheStoreDiesFirst) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  auto store = std::make_shared<testing::MemoryStore>();
  store->gone();
  std::thread killer([&] {
    std::this_thread::sleep_for(100ms);
    kill(child, SIGKILL);
  });
  try {
    ShmWorld one({1, 60s, {child, getpid()}, store});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("[comm rank 1] opening world: rank 0 died (process "));
  }
  killer.join();
  waitpid(child, nullptr, 0);
}

TEST(ShmWorld, ARankZeroThatLeftIsNamedByWhoOpensASegment) {
  auto store = std::make_shared<testing::MemoryStore>();
  auto zero = std::make_unique<ShmWorld>(options(0, store));
  ShmWorld one(options(1, store));
  zero.reset();
  try {
    one.open_channel("weights", 100, 0);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("[comm rank 1] opening channel/weights/0: rank 0 left"));
  }
  EXPECT_THAT(one.failure()->cause, HasSubstr("rank 0 left"));
}

TEST(ShmWorld, ManyDeadSlabsAreAllLetGo) {
  auto store = std::make_shared<testing::MemoryStore>();
  ShmWorld zero(options(0, store)), one(options(1, store));
  for (int i = 0; i < 200; ++i) {
    auto slab = zero.allocate(64, std::make_shared<Ledger>(), MemoryKind::weights);
    ASSERT_TRUE(one.peer_memory().find(0, {slab->id(), slab->fd(), slab->nbytes()}));
    slab.reset();
    if (i == 5) {
      zero.exchange_dead_slabs();
      one.exchange_dead_slabs();
      EXPECT_EQ(one.peer_memory().count(), 0u);
    }
  }
  zero.exchange_dead_slabs();
  one.exchange_dead_slabs();
  EXPECT_EQ(one.peer_memory().count(), 0u);
}

}  // namespace
}  // namespace shoal
