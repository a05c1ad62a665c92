#include "launch/restart_rule.h"

#include <gmock/gmock.h>
#include <signal.h>

namespace shoal::launch {
namespace {

using ::testing::HasSubstr;

constexpr RankEnd exited(int code) { return {.rank = 1, .exit_code = code}; }
constexpr RankEnd killed(int signal) { return {.rank = 1, .signal = signal}; }

TEST(RestartRule, AllowsSoManyAsWereAskedFor) {
  RestartRule none(0);
  EXPECT_EQ(none.refusal(killed(SIGKILL), 3), "The ranks are not started again: 0 of 0 restarts are used.");
  RestartRule two(2);
  EXPECT_EQ(two.refusal(killed(SIGKILL), 3), "");
  EXPECT_EQ(two.refusal(exited(1), 4), "");
  EXPECT_EQ(two.used(), 2);
  EXPECT_THAT(two.refusal(exited(1), 5), HasSubstr("2 of 2 restarts are used"));
  EXPECT_EQ(two.used(), 2);
}

TEST(RestartRule, DoesNotRepeatWhatCannotGoWell) {
  RestartRule rule(9);
  EXPECT_THAT(rule.refusal(exited(2), 0), HasSubstr("exit code 2 is a wrong flag or config"));
  EXPECT_THAT(rule.refusal(exited(kAuditExit), 0), HasSubstr("exit code 4 is an audit that found a rank"));
  EXPECT_EQ(rule.used(), 0);
}

TEST(RestartRule, OneFailureAtOneStepIsTakenForAMistakeTheThirdTime) {
  RestartRule rule(9);
  EXPECT_EQ(rule.refusal(exited(1), 7), "");
  EXPECT_EQ(rule.refusal(exited(1), 7), "");
  EXPECT_EQ(
      rule.refusal(exited(1), 7),
      "The ranks are not started again: 3 times in a row they failed after step 7 with exit code 1. Mend what the "
      "last lines say.");
  EXPECT_EQ(rule.used(), 2);
}

TEST(RestartRule, AStepFurtherOrAnotherFailureBeginsToCountAnew) {
  RestartRule rule(9);
  for (const int64_t step : {7, 7, 8, 8, 7, 7}) EXPECT_EQ(rule.refusal(exited(1), step), "") << step;
  EXPECT_EQ(rule.refusal(killed(SIGSEGV), 7), "");
  EXPECT_EQ(rule.refusal(killed(SIGSEGV), 7), "");
  EXPECT_THAT(rule.refusal(killed(SIGSEGV), 7), HasSubstr("3 times in a row"));
}

TEST(RestartRule, AKillComesFromOutsideAndIsNoMistake) {
  RestartRule rule(9);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(rule.refusal(killed(SIGKILL), 0), "") << i;
  EXPECT_THAT(rule.refusal(killed(SIGKILL), 0), HasSubstr("9 of 9"));
}

TEST(RestartRule, ARankThatWasToldToStopStaysStopped) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    RestartRule rule(9);
    EXPECT_THAT(rule.refusal(killed(signal), 3), HasSubstr("rank 1 was told to stop")) << signal;
    EXPECT_THAT(rule.refusal(exited(128 + signal), 3), HasSubstr("rank 1 was told to stop")) << signal;
  }
}

}  // namespace
}  // namespace shoal::launch
