// The messages in which a world ends.
#include "comm/failure/failure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal {
namespace {

using ::testing::StartsWith;
using namespace std::chrono_literals;

TEST(Failure, EachRankSaysWhatItWasDoingAndWhoIsToBlame) {
  const Failure failure{1, "gather of head (#7)", cause_died(0, "process 12 is gone")};
  EXPECT_THAT(error_of(failure, 1, "gather of head (#7)").what(),
              StartsWith("[comm rank 1] gather of head (#7): rank 0 died (process 12 is gone)."));
  EXPECT_THAT(error_of(failure, 2, "gather of head (#7)").what(),
              StartsWith("[comm rank 2] gather of head (#7): rank 0 died (process 12 is gone)."));
  EXPECT_THAT(error_of(failure, 2, "reduce of x (grads #3)").what(),
              StartsWith("[comm rank 2] reduce of x (grads #3): rank 1 stopped at gather of head (#7): rank 0 died"));
  // Also the rank that found it, at what it was not doing then.
  EXPECT_THAT(error_of(failure, 1, "reduce of x (grads #3)").what(),
              StartsWith("[comm rank 1] reduce of x (grads #3): rank 1 stopped at gather of head (#7): rank 0 died"));
}

TEST(Failure, LateRanksAreAllNamed) {
  EXPECT_THAT(cause_late({2}, 600s), StartsWith("rank 2 did not arrive within 600 s."));
  EXPECT_THAT(cause_not_joined({1, 3}, 8s, "a:29500"), StartsWith("ranks 1, 3 did not arrive within 8 s at a:29500, "));
  EXPECT_THAT(
      cause_unreachable(2, "b", "10.0.0.2:7", "10.0.0.1", "no answer within 3 s"),
      StartsWith("rank 2 cannot be reached at 10.0.0.2:7 (b) from 10.0.0.1: no answer within 3 s. Ranks connect"));
  EXPECT_THAT(cause_late({1, 3}, 1500ms), StartsWith("ranks 1, 3 did not arrive within 1.5 s."));
}

TEST(Failure, RanksThatJoinedAndNeverConnectedAreAllNamed) {
  EXPECT_EQ(cause_silent({1}, 30s),
            "rank 1 died or hangs: it joined the world and was not heard of for 30 s. Look at its own output.");
  EXPECT_THAT(cause_silent({0, 2}, 30s), StartsWith("ranks 0, 2 died or hangs: they joined"));
}

TEST(Failure, WhatStandsStillOnAGpuIsSaidToBeginThere) {
  EXPECT_THAT(cause_stuck(3, 600s), StartsWith("it began on the GPU of rank 3 and was not over within 600 s: "));
  EXPECT_THAT(cause_unconnected(1500ms), StartsWith("the GPUs of all ranks were not connected within 1.5 s."));
}

TEST(Failure, SurvivesTheWayThroughText) {
  const Failure failure{3, "", "rank 3 gave up: a\nb"};
  const Failure back = failure_from_text(to_text(failure));
  EXPECT_EQ(back.reporter, 3);
  EXPECT_EQ(back.at, "");
  EXPECT_EQ(back.cause, failure.cause);
}

}  // namespace
}  // namespace shoal
