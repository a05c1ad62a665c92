#include "train/audit_verdict.h"

#include <gtest/gtest.h>

namespace shoal::train {
namespace {

const std::vector<std::string> kNames = {"the loss", "the gradients of unit a", "the gradients of unit b"};

TEST(JudgeRuns, SaysNothingWhereRanksAgree) {
  EXPECT_FALSE(runs_differ({}));
  const std::vector<LeafRun> runs = {{0, 0, {1, 2, 3}}, {1, 1, {4, 5, 6}}, {0, 1, {4, 5, 6}}, {1, 0, {1, 2, 3}}};
  EXPECT_FALSE(runs_differ(runs));
  EXPECT_EQ(judge_runs(runs, kNames), "");
}

TEST(JudgeRuns, NamesARankThatDoesNotRepeatItself) {
  const std::vector<LeafRun> runs = {{0, 0, {1, 2, 3}}, {1, 1, {4, 5, 6}}, {0, 1, {4, 5, 6}},
                                     {1, 0, {1, 2, 9}}, {0, 0, {1, 2, 3}}, {1, 1, {4, 8, 6}}};
  EXPECT_TRUE(runs_differ(runs));
  EXPECT_EQ(judge_runs(runs, kNames),
            "rank 1 computed one micro-batch twice with different results, in the gradients of unit b of micro-batch 0 "
            "first");
}

TEST(JudgeRuns, NamesTheRankThatIsAloneAgainstTwo) {
  // Rank 2 is wrong, and repeats it.
  const std::vector<LeafRun> runs = {{0, 0, {1, 1, 1}}, {1, 1, {2, 2, 2}}, {2, 2, {3, 7, 3}}, {0, 1, {2, 2, 2}},
                                     {1, 2, {3, 3, 3}}, {2, 0, {1, 7, 1}}, {0, 0, {1, 1, 1}}, {1, 1, {2, 2, 2}},
                                     {2, 2, {3, 7, 3}}, {0, 2, {3, 3, 3}}, {1, 0, {1, 1, 1}}, {2, 1, {2, 7, 2}}};
  EXPECT_EQ(judge_runs(runs, kNames),
            "rank 2 computed other results than two other ranks, in the gradients of unit a of micro-batch 0 first");
}

TEST(JudgeRuns, DoesNotGuessBetweenTwo) {
  const std::vector<LeafRun> runs = {{0, 0, {1, 2, 3}}, {1, 1, {4, 5, 6}}, {0, 1, {0, 5, 6}},
                                     {1, 0, {7, 2, 3}}, {0, 0, {1, 2, 3}}, {1, 1, {4, 5, 6}}};
  EXPECT_EQ(
      judge_runs(runs, kNames),
      "ranks 0, 1 computed different results, in the loss of micro-batch 0 first; each repeats its own, so which is "
      "wrong is not known");
}

TEST(JudgeRuns, OneRankAloneIsHeldAgainstItself) {
  EXPECT_EQ(judge_runs({{0, 0, {1, 2, 3}}, {0, 0, {1, 2, 4}}}, kNames),
            "rank 0 computed one micro-batch twice with different results, in the gradients of unit b of micro-batch 0 "
            "first");
}

TEST(JudgeCopies, NamesTheRankThatIsAlone) {
  const std::vector<std::string> names = {"a.w", "b.w"};
  EXPECT_EQ(judge_copies({{1, 2}, {1, 2}, {1, 2}}, names), "");
  EXPECT_EQ(judge_copies({{1, 2}, {1, 3}, {1, 2}}, names),
            "rank 1 has other weights than the other ranks, in b.w first");
  EXPECT_EQ(judge_copies({{4, 3}, {1, 2}, {1, 2}}, names),
            "rank 0 has other weights than the other ranks, in a.w first");
  EXPECT_EQ(judge_copies({{1, 2}, {1, 3}}, names),
            "ranks have different weights, in b.w first; which are wrong is not known");
  EXPECT_EQ(judge_copies({{1, 2}}, names), "");
}

}  // namespace
}  // namespace shoal::train
