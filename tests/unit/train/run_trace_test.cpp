#include "train/run_trace.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "temp_folder.h"

namespace shoal::train {
namespace {

TrainOptions asking(const std::string& steps, const std::string& ranks = "0", const std::string& out = "") {
  TrainOptions options;
  options.trace_steps = steps;
  options.trace_ranks = ranks;
  options.out = out;
  return options;
}

TEST(RunTrace, TakesOfTheStepsAskedForThoseOfTheRun) {
  const RunTrace trace(asking("3-9"), 0, 2, 5, 7);
  EXPECT_EQ(trace.missing(), "");
  EXPECT_EQ(trace.first(), 5);
  EXPECT_FALSE(trace.ends_with(6));
  EXPECT_TRUE(trace.ends_with(7));
  EXPECT_FALSE(trace.ends_with(9));
}

TEST(RunTrace, SaysWhenTheRunTakesNoneOfThem) {
  const RunTrace trace(asking("3-4"), 0, 1, 5, 7);
  EXPECT_EQ(trace.missing(), "--trace-steps 3-4: this run takes steps 5 to 7, so there is no trace");
  EXPECT_FALSE(trace.writes());
  EXPECT_FALSE(trace.ends_with(4));
}

TEST(RunTrace, IsSilentWhereNoneWasAskedForAndWhereNoStepIsTaken) {
  for (const RunTrace& trace : {RunTrace(asking(""), 0, 1, 1, 7), RunTrace(asking("3"), 0, 1, 8, 7)}) {
    EXPECT_EQ(trace.missing(), "");
    EXPECT_FALSE(trace.writes());
    EXPECT_FALSE(trace.ends_with(7));
  }
}

TEST(RunTrace, RanksThatWereNotAskedForKnowWhenItEndsAndWriteNone) {
  const testing::TempFolder folder;
  RunTrace trace(asking("2", "0", folder.path()), 1, 2, 1, 3);
  EXPECT_FALSE(trace.writes());
  EXPECT_TRUE(trace.ends_with(2));
  trace.begin_step(2);
  EXPECT_EQ(trace.end_step(2), "");
  EXPECT_EQ(trace.end_with(3), "");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace shoal::train
