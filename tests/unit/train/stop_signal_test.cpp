#include "train/stop_signal.h"

#include <gtest/gtest.h>

namespace shoal::train {
namespace {

TEST(StopSignal, RemembersTheFirstAndLivesOn) {
  const StopSignal signals;
  EXPECT_EQ(signals.received(), 0);
  ::raise(SIGTERM);
  EXPECT_EQ(signals.received(), SIGTERM);
  ::raise(SIGINT);
  EXPECT_EQ(signals.received(), SIGTERM);
}

TEST(StopSignal, StartsWithoutThePastOne) {
  {
    const StopSignal signals;
    ::raise(SIGINT);
  }
  EXPECT_EQ(StopSignal().received(), 0);
}

TEST(StopSignalDeathTest, TheThirdEndsTheProcess) {
  EXPECT_EXIT(
      {
        const StopSignal signals;
        for (int i = 0; i < 3; ++i) ::raise(SIGINT);
      },
      ::testing::KilledBySignal(SIGINT), "");
}

// A batch system sends it ahead of time, and SIGTERM later: the patience is not used up by it.
TEST(StopSignal, TakesSigusr1AsOftenAsItComes) {
  const StopSignal signals;
  for (int i = 0; i < 5; ++i) ::raise(SIGUSR1);
  EXPECT_EQ(signals.received(), SIGUSR1);
  ::raise(SIGTERM);
  ::raise(SIGTERM);
  EXPECT_EQ(signals.received(), SIGUSR1);
}

TEST(StopSignalDeathTest, GivesTheSignalsBack) {
  EXPECT_EXIT(
      {
        { const StopSignal signals; }
        ::raise(SIGTERM);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace shoal::train
