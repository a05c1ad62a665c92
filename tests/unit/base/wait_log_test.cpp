#include "base/wait_log.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <thread>

namespace shoal {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kMillisecond = 1'000'000;

TEST(WaitLog, KeepsNothingWhileItIsOff) {
  WaitLog log;
  EXPECT_EQ(log.period(), 0u);
  log.add_until_now("disk", milliseconds(1));
  log.begin();
  EXPECT_TRUE(log.end().empty());
  log.add_until_now("disk", milliseconds(1));
  log.begin();
  EXPECT_TRUE(log.end().empty()) << "each time begins with nothing";
}

TEST(WaitLog, NumbersTheTimesThatItIsOn) {
  WaitLog log;
  log.begin();
  const uint64_t first = log.period();
  EXPECT_NE(first, 0u);
  log.end();
  EXPECT_EQ(log.period(), 0u);
  log.begin();
  EXPECT_NE(log.period(), 0u);
  EXPECT_NE(log.period(), first);
}

TEST(WaitLog, TellsWaitsInTheOrderOfTheirBeginsAndTheirLength) {
  WaitLog log;
  log.begin();
  const int64_t begin = WaitLog::unix_now_ns();
  std::this_thread::sleep_for(milliseconds(20));
  log.add_until_now("disk", milliseconds(5));
  log.add("ranks", begin, begin + 10 * kMillisecond);
  const std::vector<Wait> waits = log.end();
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_EQ(waits[0].what, "ranks");
  EXPECT_EQ(waits[0].begin_ns, begin);
  EXPECT_EQ(waits[0].end_ns, begin + 10 * kMillisecond);
  EXPECT_EQ(waits[1].what, "disk");
  EXPECT_EQ(waits[1].end_ns - waits[1].begin_ns, 5 * kMillisecond);
  EXPECT_GE(waits[1].begin_ns, begin + 15 * kMillisecond);
  EXPECT_LE(waits[1].end_ns, WaitLog::unix_now_ns());
}

TEST(WaitLog, CutsOffWhatLiesOutsideItsTime) {
  WaitLog log;
  const int64_t before = WaitLog::unix_now_ns();
  log.begin();
  const int64_t begun = WaitLog::unix_now_ns();
  std::this_thread::sleep_for(milliseconds(2));
  log.add("reaches in", before - kMillisecond, begun + kMillisecond);
  log.add("over before", before - 2 * kMillisecond, before - kMillisecond);
  log.add("reaches out", begun + kMillisecond, begun + 3600'000 * kMillisecond);
  log.add("later", begun + 3600'000 * kMillisecond, begun + 3600'001 * kMillisecond);
  const std::vector<Wait> waits = log.end();
  const int64_t after = WaitLog::unix_now_ns();
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_EQ(waits[0].what, "reaches in");
  EXPECT_GE(waits[0].begin_ns, before);
  EXPECT_LE(waits[0].begin_ns, begun);
  EXPECT_EQ(waits[0].end_ns, begun + kMillisecond);
  EXPECT_EQ(waits[1].what, "reaches out");
  EXPECT_LE(waits[1].end_ns, after);
}

TEST(WaitLog, HasOthersLookBeforeItEnds) {
  WaitLog log;
  int looks = 0;
  auto lookout = std::make_unique<WaitLog::Lookout>(log, [&] {
    ++looks;
    log.add_until_now("late", milliseconds(1));
  });
  log.begin();
  std::this_thread::sleep_for(milliseconds(2));
  EXPECT_EQ(looks, 0);
  const std::vector<Wait> waits = log.end();
  EXPECT_EQ(looks, 1);
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0].what, "late");
  lookout.reset();
  log.begin();
  log.end();
  EXPECT_EQ(looks, 1) << "it is gone";
}

TEST(WaitLog, IsOffAfterALookThatThrew) {
  WaitLog log;
  const WaitLog::Lookout lookout(log, [] { throw std::runtime_error("a GPU failed"); });
  log.begin();
  EXPECT_THROW(log.end(), std::runtime_error);
  EXPECT_EQ(log.period(), 0u);
}

TEST(WaitLog, ThreadsAddWhileItBeginsAndEnds) {
  WaitLog log;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        const WaitLog::Lookout lookout(log, [&] { log.add_until_now("looked", milliseconds(1)); });
        log.add_until_now("ranks", milliseconds(1));
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    log.begin();
    std::this_thread::sleep_for(milliseconds(1));
    for (const Wait& wait : log.end()) EXPECT_LT(wait.begin_ns, wait.end_ns);
  }
}

}  // namespace
}  // namespace shoal
