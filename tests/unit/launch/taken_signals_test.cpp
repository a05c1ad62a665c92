#include "launch/taken_signals.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <thread>

namespace shoal::launch {
namespace {

TEST(TakenSignals, AreReadInTheOrderInWhichTheyCame) {
  TakenSignals signals;
  EXPECT_EQ(signals.next(), 0);
  raise(SIGINT);
  raise(SIGTERM);
  EXPECT_EQ(signals.next(), SIGINT);
  EXPECT_EQ(signals.next(), SIGTERM);
  EXPECT_EQ(signals.next(), 0);
}

TEST(TakenSignals, MayReachAnyThread) {
  TakenSignals signals;
  std::thread([] { pthread_kill(pthread_self(), SIGTERM); }).join();
  EXPECT_EQ(signals.next(), SIGTERM);
}

TEST(TakenSignals, WhatWasIgnoredStaysIgnored) {
  signal(SIGHUP, SIG_IGN);
  {
    TakenSignals signals;
    raise(SIGHUP);
    EXPECT_EQ(signals.next(), 0);
  }
  signal(SIGHUP, SIG_DFL);
}

TEST(TakenSignals, TakeSigusr1OnlyWhenAsked) {
  EXPECT_EXIT(
      {
        TakenSignals signals;
        raise(SIGUSR1);
      },
      ::testing::KilledBySignal(SIGUSR1), "");
  TakenSignals signals(/*usr1=*/true);
  raise(SIGUSR1);
  EXPECT_EQ(signals.next(), SIGUSR1);
}

TEST(TakenSignals, AreAsBeforeAfterwards) {
  { TakenSignals signals; }
  EXPECT_EXIT(raise(SIGTERM), ::testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace shoal::launch
