// Waits that heed an alarm.
#include "device/alarm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "message_of.h"

namespace shoal {
namespace {

std::exception_ptr trouble(const char* what) { return std::make_exception_ptr(std::runtime_error(what)); }

bool never() { return false; }
void no_block() { FAIL() << "a wait that heeds an alarm must not block"; }

TEST(Alarm, ThrowsTheFirstReasonAgainAndAgain) {
  Alarm alarm;
  alarm.check();
  alarm.raise(trouble("first"));
  alarm.raise(trouble("second"));
  EXPECT_EQ(testing::message_of([&] { alarm.check(); }), "first");
  EXPECT_EQ(testing::message_of([&] { alarm.check(); }), "first");
}

TEST(Alarms, AWaitWithoutThemBlocks) {
  Alarms alarms;
  alarms.add(nullptr);
  EXPECT_TRUE(alarms.empty());
  int blocked = 0;
  alarms.wait([] { return true; }, [&] { ++blocked; });
  EXPECT_EQ(blocked, 1);
}

TEST(Alarms, AWaitEndsWhenThePointIsReached) {
  Alarms alarms;
  alarms.add(std::make_shared<Alarm>());
  int asked = 0;
  alarms.wait([&] { return ++asked == 40; }, no_block);
  EXPECT_EQ(asked, 40);
}

TEST(Alarms, AWaitThatWouldNotEndThrowsWhenOneIsRaised) {
  Alarms alarms;
  const auto first = std::make_shared<Alarm>(), second = std::make_shared<Alarm>();
  alarms.add(first);
  alarms.add(second);
  std::thread raiser([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    second->raise(trouble("stuck"));
  });
  EXPECT_EQ(testing::message_of([&] { alarms.wait(never, no_block); }), "stuck");
  raiser.join();
}

TEST(Alarms, APointThatIsReachedBecauseTheStreamWasClearedThrowsToo) {
  Alarms alarms;
  const auto alarm = std::make_shared<Alarm>();
  alarms.add(alarm);
  EXPECT_EQ(testing::message_of([&] {
              alarms.wait(
                  [&] {
                    alarm->raise(trouble("cleared"));
                    return true;
                  },
                  no_block);
            }),
            "cleared");
}

}  // namespace
}  // namespace shoal
