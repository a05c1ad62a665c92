#include "schedule/gather_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace shoal {
namespace {

// Runs one use of each unit in turn and returns the actions as text.
std::string run_phase(GatherSchedule& schedule, Phase phase, const std::vector<int>& units) {
  std::string text = to_text(schedule.begin(phase));
  for (const int unit : units) {
    text += to_text(schedule.enter(unit));
    text += "use " + std::to_string(unit) + "\n";
    text += to_text(schedule.exit(unit));
  }
  return text;
}

std::vector<int> gathers_in(const std::string& text) {
  std::vector<int> units;
  for (size_t at = text.find("gather "); at != std::string::npos; at = text.find("gather ", at + 1)) {
    units.push_back(std::stoi(text.substr(at + 7)));
  }
  return units;
}

// Passes in which every unit is used once, in the declared order: they record the orders.
void record_orders(GatherSchedule& schedule, int units) {
  std::vector<int> order(static_cast<size_t>(units));
  std::iota(order.begin(), order.end(), 0);
  run_phase(schedule, Phase::forward, order);
  std::reverse(order.begin(), order.end());
  run_phase(schedule, Phase::backward, order);
  schedule.finish();
}

TEST(GatherSchedule, GoldenTextOfATrainingPassWithPrefetchOfOne) {
  GatherSchedule schedule({10, 10, 10}, {.prefetch_numel = 10});
  EXPECT_EQ(run_phase(schedule, Phase::forward, {0, 1, 2}),  // the first pass has no order to run ahead by
            "gather 0\nuse 0\nrelease 0\n"
            "gather 1\nuse 1\nrelease 1\n"
            "gather 2\nuse 2\nrelease 2\n");
  run_phase(schedule, Phase::backward, {2, 1, 0});
  EXPECT_EQ(run_phase(schedule, Phase::forward, {0, 1, 2}),
            "gather 0\ngather 1\nuse 0\nrelease 0\n"
            "gather 2\nuse 1\nrelease 1\n"
            "use 2\nrelease 2\n");
  EXPECT_EQ(run_phase(schedule, Phase::backward, {2, 1, 0}),
            "gather 2\ngather 1\nuse 2\nrelease 2\n"
            "gather 0\nuse 1\nrelease 1\n"
            "use 0\nrelease 0\n");
  EXPECT_EQ(to_text(schedule.finish()), "");
  EXPECT_EQ(schedule.order(Phase::backward), (std::vector<int>{2, 1, 0}));
}

TEST(GatherSchedule, OneUnitRunsAheadHoweverLargeWhereThatIsWanted) {
  GatherSchedule schedule({10, 20, 3, 3}, {.prefetch_numel = 5, .one_ahead = true});
  record_orders(schedule, 4);
  EXPECT_EQ(run_phase(schedule, Phase::forward, {0, 1, 2, 3}),
            "gather 0\ngather 1\nuse 0\nrelease 0\n"
            "gather 2\nuse 1\nrelease 1\n"
            "gather 3\nuse 2\nrelease 2\n"
            "use 3\nrelease 3\n");
}

TEST(GatherSchedule, WithoutPrefetchOneUnitIsLiveAtATime) {
  GatherSchedule schedule({10, 20, 30}, {});
  schedule.begin(Phase::forward);
  for (int unit = 0; unit < 3; ++unit) {
    schedule.enter(unit);
    EXPECT_EQ(schedule.live_numel(), 10 * (unit + 1));
    schedule.exit(unit);
  }
}

TEST(GatherSchedule, MaxLiveHoldsBackPrefetchButNeverADemandedUnit) {
  GatherSchedule schedule({10, 20, 30}, {.prefetch_numel = 1000, .max_live_numel = 25});
  record_orders(schedule, 3);
  schedule.begin(Phase::forward);
  EXPECT_EQ(to_text(schedule.enter(0)), "gather 0\n");
  schedule.exit(0);
  EXPECT_EQ(to_text(schedule.enter(1)), "gather 1\n");
  schedule.exit(1);
  EXPECT_EQ(to_text(schedule.enter(2)), "gather 2\n");
}

TEST(GatherSchedule, OneUnitOfABufferRunsAheadAtATime) {
  GatherSchedule schedule({10, 10, 10, 10, 10}, {.prefetch_numel = 1000, .buffer_of = {0, 1, 0, -1, 1}});
  record_orders(schedule, 5);
  schedule.begin(Phase::forward);
  EXPECT_EQ(to_text(schedule.enter(0)), "gather 0\ngather 1\ngather 2\ngather 3\n");
  schedule.exit(0);
  EXPECT_EQ(to_text(schedule.enter(1)), "gather 4\n");
  schedule.exit(1);
  schedule.begin(Phase::backward);
  EXPECT_EQ(to_text(schedule.enter(4)), "gather 4\ngather 3\ngather 2\ngather 1\n");
  schedule.exit(4);
  EXPECT_EQ(to_text(schedule.enter(2)), "release 3\ngather 0\n");
}

TEST(GatherSchedule, SkippedUnitsAreGatheredAndReleasedForTheOthers) {
  GatherSchedule schedule({10, 10, 10, 10}, {});
  record_orders(schedule, 4);
  EXPECT_EQ(run_phase(schedule, Phase::forward, {0, 3}),
            "gather 0\nuse 0\nrelease 0\ngather 1\nrelease 1\ngather 2\nrelease 2\ngather 3\nuse 3\nrelease 3\n");
  EXPECT_EQ(run_phase(schedule, Phase::backward, {3, 0}),
            "gather 3\nuse 3\nrelease 3\ngather 2\nrelease 2\ngather 1\nrelease 1\ngather 0\nuse 0\nrelease 0\n");
}

TEST(GatherSchedule, TailOfTheOrderIsTakenPartInAtTheEnd) {
  GatherSchedule schedule({10, 10, 10}, {});
  record_orders(schedule, 3);
  run_phase(schedule, Phase::forward, {0});
  EXPECT_EQ(to_text(schedule.finish()), "gather 1\nrelease 1\ngather 2\nrelease 2\n");
}

TEST(GatherSchedule, TwiceUsedUnitIsLearnedInTheFirstPass) {
  GatherSchedule schedule({10, 10, 10}, {.prefetch_numel = 10});
  run_phase(schedule, Phase::forward, {0, 1, 0, 2});
  schedule.finish();
  EXPECT_EQ(schedule.order(Phase::forward), (std::vector<int>{0, 1, 0, 2}));
  EXPECT_EQ(gathers_in(run_phase(schedule, Phase::forward, {0, 1, 0, 2})), (std::vector<int>{0, 1, 0, 2}));
}

TEST(GatherSchedule, PruneDropsEntriesThatNobodyUsed) {
  GatherSchedule schedule({10, 10, 10}, {});
  run_phase(schedule, Phase::forward, {0, 2, 1});  // declared 0, 1, 2: unit 1 is skipped first, then demanded
  schedule.finish();
  EXPECT_EQ(schedule.order(Phase::forward), (std::vector<int>{0, 1, 2, 1}));
  schedule.prune(Phase::forward, schedule.used(Phase::forward));
  EXPECT_EQ(schedule.order(Phase::forward), (std::vector<int>{0, 2, 1}));
}

TEST(GatherSchedule, PruneKeepsAUnitThatNobodyUsedAtAll) {
  GatherSchedule schedule({10, 10}, {});
  run_phase(schedule, Phase::forward, {0});
  schedule.finish();
  schedule.prune(Phase::forward, schedule.used(Phase::forward));
  EXPECT_EQ(schedule.order(Phase::forward), (std::vector<int>{0, 1}));
}

// Units 0 to 3 are experts, 4 is the root, which is declared last and entered first.
std::vector<int> order_of_experts(Phase phase, const std::vector<int>& uses,
                                  const std::vector<int>& forward = {4, 0, 1, 2, 3}) {
  GatherSchedule schedule({10, 10, 10, 10, 10}, {.family_of = {0, 0, 0, 0, 1}});
  if (phase == Phase::backward) {
    run_phase(schedule, Phase::forward, forward);
    schedule.finish();
    schedule.prune(Phase::forward, schedule.used(Phase::forward));
  }
  run_phase(schedule, phase, uses);
  schedule.finish();
  schedule.prune(phase, schedule.used(phase));
  return schedule.order(phase);
}

TEST(GatherSchedule, UnitsThatNobodyUsedStandBesideTheirRelatives) {
  EXPECT_EQ(order_of_experts(Phase::forward, {4, 0}), (std::vector<int>{4, 0, 1, 2, 3}));
  EXPECT_EQ(order_of_experts(Phase::forward, {4, 2}), (std::vector<int>{4, 0, 1, 2, 3}));
  EXPECT_EQ(order_of_experts(Phase::forward, {4, 1, 1}), (std::vector<int>{4, 0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(order_of_experts(Phase::forward, {4}), (std::vector<int>{4, 0, 1, 2, 3}));
  EXPECT_EQ(order_of_experts(Phase::backward, {4, 1}), (std::vector<int>{4, 3, 2, 1, 0}));
  EXPECT_EQ(order_of_experts(Phase::backward, {4, 3, 0}), (std::vector<int>{4, 3, 2, 1, 0}));
  EXPECT_EQ(order_of_experts(Phase::backward, {4}), (std::vector<int>{4, 3, 2, 1, 0}));
  EXPECT_EQ(order_of_experts(Phase::backward, {4, 1}, {4, 1, 1}), (std::vector<int>{4, 3, 2, 1, 3, 2, 0}))
      << "others may be used between the two";
}

TEST(GatherSchedule, NestedUseGathersOnceAndReleasesAtTheLastExit) {
  GatherSchedule schedule({10, 10}, {});
  schedule.begin(Phase::forward);
  EXPECT_EQ(to_text(schedule.enter(0)), "gather 0\n");
  EXPECT_EQ(to_text(schedule.enter(0)), "");
  EXPECT_EQ(to_text(schedule.exit(0)), "");
  EXPECT_EQ(to_text(schedule.exit(0)), "release 0\n");
}

TEST(GatherSchedule, UnitsWithNothingToGatherNeverAppear) {
  GatherSchedule schedule({10, 0, 10}, {.prefetch_numel = 100});
  EXPECT_EQ(gathers_in(run_phase(schedule, Phase::forward, {0, 1, 2})), (std::vector<int>{0, 2}));
}

// Ranks that skip different units still gather the same sequence, pass after pass.
TEST(GatherSchedule, RanksThatSkipDifferentUnitsAgreeOnTheGathers) {
  std::mt19937 random(7);
  for (const int64_t prefetch : {0, 10, 25, 1000}) {
    std::vector<GatherSchedule> ranks(3, GatherSchedule(std::vector<int64_t>(6, 10), {.prefetch_numel = prefetch}));
    for (GatherSchedule& rank : ranks) record_orders(rank, 6);
    for (int pass = 0; pass < 20; ++pass) {
      std::vector<std::vector<int>> seen;
      for (GatherSchedule& rank : ranks) {
        std::vector<int> used;
        for (int unit = 0; unit < 6; ++unit) {
          if (random() % 3 != 0) used.push_back(unit);
        }
        std::string text = run_phase(rank, Phase::forward, used);
        std::reverse(used.begin(), used.end());
        text += run_phase(rank, Phase::backward, used);
        text += to_text(rank.finish());
        EXPECT_EQ(rank.live_numel(), 0);
        seen.push_back(gathers_in(text));
      }
      EXPECT_EQ(seen[0], seen[1]);
      EXPECT_EQ(seen[0], seen[2]);
    }
  }
}

TEST(GatherSchedule, PassingByTakesPartOnceAndOnlyWhereTheUnitHadNoTurn) {
  GatherSchedule schedule({10, 10, 10}, {});
  record_orders(schedule, 3);
  schedule.begin(Phase::backward);
  schedule.enter(2);
  schedule.exit(2);
  EXPECT_EQ(to_text(schedule.pass_by(2)), "");
  EXPECT_EQ(to_text(schedule.pass_by(1)), "gather 1\nrelease 1\n");
  EXPECT_EQ(to_text(schedule.pass_by(1)), "");
  EXPECT_EQ(to_text(schedule.enter(0)), "gather 0\n");
}

// The first pass: rank 0 skips unit 2 and uses unit 0 twice, rank 1 uses all. Wishes are settled one by one.
TEST(GatherSchedule, RanksAgreeGatherByGatherInTheFirstPass) {
  std::vector<GatherSchedule> ranks(2, GatherSchedule({10, 10, 10}, {}));
  const std::vector<std::vector<int>> uses = {{0, 1, 0}, {0, 1, 2, 0}};
  std::vector<size_t> at(2, 0);
  std::vector<int> gathered;
  for (GatherSchedule& rank : ranks) rank.begin(Phase::forward);
  while (true) {
    std::vector<int> wishes;
    for (size_t rank = 0; rank < 2; ++rank)
      wishes.push_back(at[rank] < uses[rank].size() ? uses[rank][at[rank]] : kNoUnit);
    const int chosen = ranks[0].choose(wishes);
    ASSERT_EQ(chosen, ranks[1].choose(wishes));
    if (chosen == kNoUnit) break;
    gathered.push_back(chosen);
    for (size_t rank = 0; rank < 2; ++rank) {
      if (wishes[rank] == chosen) {
        ranks[rank].enter(chosen);
        ranks[rank].exit(chosen);
        ++at[rank];
      } else {
        ranks[rank].take_part(chosen);
      }
    }
  }
  EXPECT_EQ(gathered, (std::vector<int>{0, 1, 2, 0}));
  for (GatherSchedule& rank : ranks) {
    EXPECT_EQ(to_text(rank.finish()), "");
    EXPECT_EQ(rank.order(Phase::forward), gathered);
  }
}

TEST(GatherSchedule, TellsWhatIsGatheredNextAcrossPhases) {
  GatherSchedule schedule({10, 10, 0, 10}, {.prefetch_numel = 10});
  schedule.begin(Phase::forward);
  EXPECT_EQ(schedule.upcoming(9), (std::vector<int>{0, 1, 3}));  // the likely order
  EXPECT_EQ(schedule.upcoming(0), (std::vector<int>{}));
  schedule.enter(0);
  EXPECT_EQ(schedule.upcoming(2), (std::vector<int>{1, 3}));
  schedule.finish();
  record_orders(schedule, 4);
  schedule.begin(Phase::forward);
  schedule.enter(0);                                             // prefetches 1
  EXPECT_EQ(schedule.upcoming(3), (std::vector<int>{3, 1, 0}));  // then backward begins, with 3
  schedule.finish();
  schedule.begin(Phase::backward);
  schedule.enter(3);
  EXPECT_EQ(schedule.upcoming(3), (std::vector<int>{0, 1, 3}));  // then the next forward
}

TEST(GatherSchedule, FindsRanksThatUseUnitsInDifferentOrders) {
  const std::vector<int> order = {0, 1, 2, 1};
  const auto found = find_inversion(order, {1, 1, 1, 0,    // rank 0: 0 1 2
                                            1, 0, 0, 0,    // rank 1: 0
                                            1, 0, 1, 1});  // rank 2: 0 2 1
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->unit, 1);
  EXPECT_EQ(found->other_unit, 2);
  EXPECT_EQ(found->rank_before, 0);
  EXPECT_EQ(found->rank_after, 2);
}

TEST(GatherSchedule, UnitsLeftOutOrUsedAgainAreNoInversion) {
  EXPECT_FALSE(find_inversion({}, {}));
  EXPECT_FALSE(find_inversion({0, 1, 2}, {1, 1, 1, 0, 1, 1, 1, 0, 1}));
  EXPECT_FALSE(find_inversion({0, 1, 0}, {1, 1, 1, 0, 1, 1}));  // rank 0 uses unit 0 twice, rank 1 the second time only
  EXPECT_FALSE(find_inversion({2, 1, 0}, {1, 1, 1, 1, 1, 1}));
}

}  // namespace
}  // namespace shoal
