#include "train/slow_rank.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <vector>

namespace shoal::train {
namespace {

// Steps of a tenth of a second in which ranks wait so long.
class Steps {
 public:
  explicit Steps(size_t ranks) : totals_(ranks) { slow_.see(totals_, 5); }

  std::optional<int> take(const std::vector<double>& waits, int steps = 1) {
    for (int step = 0; step < steps; ++step) {
      for (size_t rank = 0; rank < waits.size(); ++rank) totals_[rank].comm += waits[rank];
      slow_.see(totals_, 0.1);
    }
    return slow_.now();
  }

 private:
  std::vector<RankTimes> totals_;
  SlowRank slow_;
};

TEST(SlowRank, IsTheOneThatAllOthersWaitForTenTimes) {
  for (const int slow : {0, 1, 2, 3}) {
    Steps steps(4);
    std::vector<double> waits(4, 0.02);
    waits[static_cast<size_t>(slow)] = 0.001;
    EXPECT_EQ(steps.take(waits, SlowRank::kSteps - 1), std::nullopt);
    EXPECT_EQ(steps.take(waits), slow);
    EXPECT_EQ(steps.take({0.02, 0.02, 0.02, 0.02}), std::nullopt) << "one even step ends it";
    EXPECT_EQ(steps.take(waits, SlowRank::kSteps - 1), std::nullopt);
    EXPECT_EQ(steps.take(waits), slow);
  }
}

TEST(SlowRank, IsNobodyWhereItIsAnotherOneEachTime) {
  Steps steps(2);
  for (int turn = 0; turn < 30; ++turn) {
    EXPECT_EQ(turn % 3 == 0 ? steps.take({0, 0.05}) : steps.take({0.05, 0}), std::nullopt) << turn;
  }
}

TEST(SlowRank, IsNobodyWhereOneOfTheOthersDoesNotWaitEither) {
  Steps steps(3);
  EXPECT_EQ(steps.take({0.001, 0.05, 0.005}, 30), std::nullopt);
}

TEST(SlowRank, IsNobodyWhereWaitsAreShort) {
  Steps steps(2);
  EXPECT_EQ(steps.take({0.0, 0.0099}, 30), std::nullopt) << "below a tenth of the step";
  EXPECT_EQ(steps.take({0.0, 0.0101}, 30), 0);
  SlowRank quick;
  std::vector<RankTimes> totals(2);
  for (int step = 0; step < 30; ++step) {
    totals[1].comm += 0.0005;
    quick.see(totals, 0.001);
  }
  EXPECT_EQ(quick.now(), std::nullopt) << "below a millisecond";
}

TEST(SlowRank, IsNobodyInAWorldOfOneOrWithoutNumbers) {
  Steps alone(1);
  EXPECT_EQ(alone.take({0}, 30), std::nullopt);
  SlowRank none;
  for (int step = 0; step < 30; ++step) none.see({}, 0.1);
  EXPECT_EQ(none.now(), std::nullopt);
  Steps odd(2);
  EXPECT_EQ(odd.take({0, NAN}, 30), std::nullopt);
}

}  // namespace
}  // namespace shoal::train
