#include "launch/outcome.h"

#include <gtest/gtest.h>

namespace shoal::launch {
namespace {

TEST(LaunchOutcome, IsZeroWhenEveryRankEndedWithZero) {
  const LaunchOutcome outcome{.ends = {{.rank = 1}, {.rank = 0}}};
  EXPECT_EQ(outcome.first_failed(), -1);
  EXPECT_EQ(outcome.exit_code(), 0);
  EXPECT_EQ(closing_text(outcome), "");
}

TEST(LaunchOutcome, TheFirstRankThatFailedByItselfGivesTheExitCode) {
  const LaunchOutcome outcome{.ends = {{.rank = 2},
                                       {.rank = 1, .signal = 15, .ended_by_us = true},
                                       {.rank = 0, .exit_code = 7},
                                       {.rank = 3, .exit_code = 1}}};
  EXPECT_EQ(outcome.first_failed(), 2);
  EXPECT_EQ(outcome.exit_code(), 7);
}

TEST(LaunchOutcome, ASignalIsAddedTo128) {
  EXPECT_EQ((LaunchOutcome{.ends = {{.rank = 0, .signal = 9}}}.exit_code()), 137);
  EXPECT_EQ((LaunchOutcome{.ends = {{.rank = 0}}, .interrupted = 2}.exit_code()), 130);
}

TEST(LaunchOutcome, RanksThatAreUnfinishedHaveNotFailed) {
  LaunchOutcome outcome{.ends = {{.rank = 0}, {.rank = 1, .exit_code = 75, .unfinished = true}}};
  EXPECT_FALSE(outcome.failed());
  EXPECT_EQ(outcome.exit_code(), 75);
  EXPECT_EQ(closing_text(outcome), "");
  outcome.ends.push_back({.rank = 2, .exit_code = 1});
  EXPECT_TRUE(outcome.failed());
  EXPECT_EQ(outcome.exit_code(), 1);
}

TEST(LaunchOutcome, OfRanksThatEndedTogetherTheOneASignalEndedComesFirst) {
  const auto ends =
      in_likely_order({{.rank = 0, .exit_code = 1}, {.rank = 1, .exit_code = 1}, {.rank = 2, .signal = 9}});
  EXPECT_EQ(ends[0].rank, 2);
  EXPECT_EQ(ends[1].rank, 0);
  EXPECT_EQ(ends[2].rank, 1);
}

TEST(ClosingText, EndsWithTheLastLinesOfTheRankThatFailedFirst) {
  const LaunchOutcome outcome{.ends = {{.rank = 1, .signal = 9, .last_lines = "step 3\nstep 4"},
                                       {.rank = 0, .exit_code = 1, .last_lines = "rank 1 died"},
                                       {.rank = 2, .signal = 15, .ended_by_us = true}}};
  EXPECT_EQ(closing_text(outcome),
            "shoal: rank 0 ended with exit code 1.\n"
            "shoal: rank 2 ended with signal 15 (Terminated), sent by the launcher.\n"
            "shoal: rank 1 failed first, with signal 9 (Killed). Its last lines:\n"
            "  | step 3\n"
            "  | step 4\n");
}

TEST(ClosingText, SaysThatARankPrintedNothing) {
  EXPECT_EQ(closing_text({.ends = {{.rank = 0, .exit_code = 5}}}),
            "shoal: rank 0 failed first, with exit code 5. It printed nothing.\n");
}

TEST(ClosingText, SaysWhatInterruptedTheLaunch) {
  EXPECT_EQ(closing_text({.ends = {{.rank = 0, .signal = 2, .last_lines = "step 9"}, {.rank = 1}}, .interrupted = 2}),
            "shoal: the launch was ended by signal 2 (Interrupt).\n"
            "shoal: rank 0 ended with signal 2 (Interrupt).\n");
}

}  // namespace
}  // namespace shoal::launch
