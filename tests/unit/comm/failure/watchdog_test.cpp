// The thread that ends collectives which do not end by themselves; the GPU and the other ranks are fakes.
#include "comm/failure/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "message_of.h"
#include "shoal/error.h"
#include "unit/comm/fake_collective.h"

namespace shoal {
namespace {

using testing::FakeCollective;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::chrono_literals;

class FakeFate final : public Fate {
 public:
  Timeout timeout() const override { return 100ms; }
  std::optional<Failure> failure() override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  std::string dead_peer() override {
    const std::lock_guard lock(mutex_);
    return dead_;
  }
  void fail(const Failure& failure) override {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = failure;
  }
  void kill(const std::string& dead) {
    const std::lock_guard lock(mutex_);
    dead_ = dead;
  }

 private:
  std::mutex mutex_;
  std::optional<Failure> failure_;
  std::string dead_;
};

class WatchdogTest : public ::testing::Test {
 protected:
  Watchdog::Options options(Timeout timeout) {
    Watchdog::Options options;
    options.rank = 1;
    options.timeout = timeout;
    options.shortest_silence = 1h;
    options.fate = fate;
    options.alarm = alarm;
    options.stop = [this] { ++stopped; };
    return options;
  }
  // What the alarm is raised with, once it is; empty if it is not within the time.
  std::string alarm_within(Timeout limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (!alarm->raised() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(1ms);
    if (!alarm->raised()) return "";
    return testing::message_of([this] { alarm->check(); });
  }
  bool stopped_within(Timeout limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (stopped == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(1ms);
    return stopped == 1;
  }

  std::shared_ptr<FakeFate> fate = std::make_shared<FakeFate>();
  std::shared_ptr<Alarm> alarm = std::make_shared<Alarm>();
  std::atomic<int> stopped{0};
};

TEST_F(WatchdogTest, ALateCollectiveIsNamedTheRanksAreToldAndTheStreamIsCleared) {
  Watchdog dog(options(50ms));
  dog.watch("gather of block.3 (weights #42)", std::make_shared<FakeCollective>(true));
  EXPECT_THAT(alarm_within(10s),
              StartsWith("[comm rank 1] gather of block.3 (weights #42): it began on the GPU of rank "
                         "1 and was not over within 0.05 s: "));
  EXPECT_TRUE(stopped_within(10s));
  const std::optional<Failure> told = fate->failure();
  ASSERT_TRUE(told);
  EXPECT_THAT(error_of(*told, 0, "reduce of head (gradients #7)").what(),
              StartsWith("[comm rank 0] reduce of head (gradients #7): rank 1 stopped at gather of block.3 (weights "
                         "#42): it began on the GPU of rank 1"));
}

TEST_F(WatchdogTest, WhatWaitsInTheStreamIsNotLate) {
  Watchdog dog(options(20ms));
  const auto gather = std::make_shared<FakeCollective>();
  dog.watch("gather of block.3 (weights #42)", gather);
  while (dog.looks() < 5) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(200ms);
  gather->over = true;
  EXPECT_FALSE(alarm->raised());
  EXPECT_EQ(stopped, 0);
}

TEST_F(WatchdogTest, AnotherRanksFailureEndsWhatIsUnderWayAtOnce) {
  Watchdog dog(options(1h));
  dog.watch("gather of block.3 (weights #42)", std::make_shared<FakeCollective>());
  fate->fail({0, "reduce of head (gradients #7)", cause_late({2}, 1s)});
  EXPECT_THAT(alarm_within(10s),
              StartsWith("[comm rank 1] gather of block.3 (weights #42): rank 0 stopped at reduce of "
                         "head (gradients #7): rank 2 did not arrive within 1 s."));
  EXPECT_TRUE(stopped_within(10s));
}

TEST_F(WatchdogTest, ADeadRankEndsWhatIsOverdueAndIsNamedToAll) {
  Watchdog dog(options(1h));
  const auto gather = std::make_shared<FakeCollective>(true);
  dog.watch("gather of block.3 (weights #42)", gather);
  fate->kill(cause_died(2, "process 12 is gone"));
  EXPECT_THAT(alarm_within(10s),
              StartsWith("[comm rank 1] gather of block.3 (weights #42): rank 2 died (process 12 is gone)."));
  EXPECT_TRUE(stopped_within(10s));  // ranks are told before that, and after the alarm
  EXPECT_EQ(fate->failure()->cause, cause_died(2, "process 12 is gone"));
}

TEST_F(WatchdogTest, ARankThatEndsAfterItsPartIsNoFailure) {
  Watchdog::Options patient = options(1h);
  patient.overdue = 1h;
  Watchdog dog(std::move(patient));
  const auto gather = std::make_shared<FakeCollective>(true);
  dog.watch("gather of block.3 (weights #42)", gather);
  fate->kill(cause_died(2, "process 12 is gone"));
  EXPECT_EQ(alarm_within(400ms), "");
  gather->over = true;
  EXPECT_EQ(alarm_within(400ms), "");
}

TEST_F(WatchdogTest, WhoIsToBlameIsSaidWhereThatIsKnown) {
  Watchdog::Options known = options(50ms);
  known.blame = [](uint64_t sequence) { return sequence == 42 ? "rank 2 did not arrive." : ""; };
  std::atomic<uint64_t> looked_at{0};
  known.looked = [&](uint64_t sequence, bool begun) {
    if (begun) looked_at = sequence;
  };
  Watchdog dog(std::move(known));
  dog.watch("gather of block.3 (weights #42)", std::make_shared<FakeCollective>(true), 42);
  EXPECT_EQ(alarm_within(10s), "[comm rank 1] gather of block.3 (weights #42): rank 2 did not arrive.");
  EXPECT_EQ(looked_at, 42u);
}

TEST_F(WatchdogTest, ADeathThatIsSeenAMomentAfterTheTransportsErrorIsTheCause) {
  Watchdog::Options of_transport = options(1h);
  of_transport.patience = 60s;
  std::atomic<bool> cut{false};
  of_transport.trouble = [&] { return cut ? "NCCL failed meanwhile: remote process exited." : ""; };
  Watchdog dog(std::move(of_transport));
  dog.watch("gather of a (#1)", std::make_shared<FakeCollective>());
  cut = true;
  std::this_thread::sleep_for(200ms);
  fate->kill(cause_died(2, "process 12 is gone"));
  EXPECT_THAT(alarm_within(10s), StartsWith("[comm rank 1] gather of a (#1): rank 2 died (process 12 is gone)"));
}

TEST_F(WatchdogTest, WhatTheTransportOrTheGpuSaysIsPassedOn) {
  Watchdog::Options of_transport = options(1h);
  of_transport.patience = 10ms;
  of_transport.trouble = [] { return "NCCL failed meanwhile: remote process exited."; };
  Watchdog first(std::move(of_transport));
  first.watch("gather of a (#1)", std::make_shared<FakeCollective>());
  EXPECT_THAT(alarm_within(10s), StartsWith("[comm rank 1] gather of a (#1): NCCL failed meanwhile: remote"));

  fate = std::make_shared<FakeFate>();
  alarm = std::make_shared<Alarm>();
  Watchdog second(options(1h));
  const auto gather = std::make_shared<FakeCollective>(true);
  gather->broken = true;
  second.watch("gather of b (#2)", gather);
  EXPECT_THAT(alarm_within(10s),
              StartsWith("[comm rank 1] gather of b (#2): the GPU of rank 1 failed: an illegal memory access"));
}

TEST_F(WatchdogTest, AGpuThatDoesNotAnswerIsAsGoodAsLateAndIsCleared) {
  const auto gather = std::make_shared<FakeCollective>();
  Watchdog::Options of_mute = options(50ms);
  of_mute.shortest_silence = 1s;
  of_mute.stop = [&] {
    ++stopped;
    gather->mute = false;
  };
  Watchdog dog(std::move(of_mute));
  gather->mute = true;
  dog.watch("gather of a (#1)", gather);
  EXPECT_THAT(alarm_within(10s),
              StartsWith("[comm rank 1] gather of a (#1): the CUDA runtime of rank 1 did not answer for 1 s: "));
  EXPECT_TRUE(stopped_within(10s));
  EXPECT_EQ(fate->failure()->at, "gather of a (#1)");
}

TEST_F(WatchdogTest, ADeadRankIsNoticedWhileTheGpuDoesNotAnswer) {
  const auto gather = std::make_shared<FakeCollective>();
  Watchdog::Options of_mute = options(1h);
  of_mute.stop = [&] { gather->mute = false; };
  Watchdog dog(std::move(of_mute));
  gather->mute = true;
  dog.watch("gather of a (#1)", gather);
  fate->kill(cause_died(2, "process 12 is gone"));
  EXPECT_THAT(alarm_within(10s), StartsWith("[comm rank 1] gather of a (#1): rank 2 died (process 12 is gone)."));
}

TEST_F(WatchdogTest, SleepsWhileNothingIsUnderWay) {
  Watchdog dog(options(10ms));
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(dog.looks(), 0);
  const auto gather = std::make_shared<FakeCollective>(true);
  gather->over = true;
  dog.watch("gather of a (#1)", gather);
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (gather.use_count() > 1 && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(dog.looks(), 1);
  EXPECT_EQ(gather.use_count(), 1);
  EXPECT_FALSE(alarm->raised());
}

TEST_F(WatchdogTest, GoesWithWorkUnderWayAndLeavesItAlone) {
  const auto gather = std::make_shared<FakeCollective>(true);
  const auto begin = std::chrono::steady_clock::now();
  {
    Watchdog dog(options(1h));
    dog.watch("gather of a (#1)", gather);
    dog.watch("gather of b (#2)", std::make_shared<FakeCollective>());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  EXPECT_FALSE(alarm->raised());
  EXPECT_EQ(stopped, 0);
  EXPECT_EQ(gather.use_count(), 1);
}

TEST_F(WatchdogTest, TakesNoMoreOnceTheWorldHasEnded) {
  Watchdog dog(options(10ms));
  dog.watch("gather of a (#1)", std::make_shared<FakeCollective>(true));
  EXPECT_TRUE(stopped_within(10s));
  const auto late = std::make_shared<FakeCollective>(true);
  dog.watch("gather of b (#2)", late);
  EXPECT_EQ(late.use_count(), 1);
  EXPECT_THAT(alarm_within(0ms), HasSubstr("gather of a (#1)"));
}

}  // namespace
}  // namespace shoal
