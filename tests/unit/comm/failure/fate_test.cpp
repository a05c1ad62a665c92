#include "comm/failure/fate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace shoal {
namespace {

using namespace std::chrono_literals;

struct PlayedFate final : Fate {
  Timeout timeout() const override { return 1s; }
  std::optional<Failure> failure() override {
    if (!written) return std::nullopt;
    return Failure{2, "gather of a (#1)", "rank 3 gave up: the disk is full"};
  }
  std::string dead_peer() override { return dead ? "rank 3 died (process 12 is gone)." : ""; }
  void fail(const Failure&) override {}
  std::atomic<bool> written{false}, dead{false};
};

TEST(WhatLiesBehind, ADeathThatIsSeenAMomentLaterIsTheCause) {
  PlayedFate fate;
  std::thread later([&] {
    std::this_thread::sleep_for(50ms);
    fate.dead = true;
  });
  const auto found = what_lies_behind(fate, {1, "reduce of b (#2)", "remote process exited"}, 60s);
  later.join();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->reporter, 1);
  EXPECT_EQ(found->at, "reduce of b (#2)");
  EXPECT_EQ(found->cause, "rank 3 died (process 12 is gone).");
}

TEST(WhatLiesBehind, WhatAnotherRankWroteComesFirst) {
  PlayedFate fate;
  fate.dead = fate.written = true;
  EXPECT_EQ(what_lies_behind(fate, {1, "", ""}, 60s)->cause, "rank 3 gave up: the disk is full");
}

TEST(WhatLiesBehind, NothingAfterTheWait) {
  PlayedFate fate;
  EXPECT_FALSE(what_lies_behind(fate, {1, "", ""}, 30ms));
}

}  // namespace
}  // namespace shoal
