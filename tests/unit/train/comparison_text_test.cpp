#include <gtest/gtest.h>

#include "base/json.h"
#include "train/compare_runs.h"

namespace shoal::train {
namespace {

Comparison equal_runs() {
  Comparison found;
  found.first = "a";
  found.second = "b";
  found.steps = {1, 2, 3};
  found.digested = {2};
  found.columns = {"loss", "lr"};
  return found;
}

Comparison different_runs() {
  Comparison found = equal_runs();
  found.difference = {"metrics.jsonl", 2, {{"loss", "1.5", "1.25"}, {"digest", "\"0f\"", "\"1f\""}}};
  found.state = {2, "block.0", "block.0.wq", {{"weight", "\"1\"", "\"2\""}}, {"first_moment"}, 4, 9};
  found.settings = {{"ranks", "1", "4"}, {"more", "", "true"}};
  found.notes = {"a: step 4 missing"};
  return found;
}

TEST(ComparisonText, SaysThatRunsAreEqual) {
  EXPECT_EQ(to_text(equal_runs()),
            "equal to the bit until step 3: loss, lr in 3 steps\n"
            "digests of weights and moments are equal, the last after step 2\n");
  Comparison found = equal_runs();
  found.digested = {};
  EXPECT_EQ(to_text(found),
            "equal to the bit until step 3: loss, lr in 3 steps\n"
            "no digests that both have: shoal train --digest-every N writes them, and names the parameter then\n");
}

TEST(ComparisonText, SaysWhereTheyPart) {
  EXPECT_EQ(to_text(different_runs()),
            "equal to the bit until step 1\n"
            "first difference: step 2, loss: 1.5 | 1.25\n"
            "                  step 2, digest: \"0f\" | \"1f\"\n"
            "first digests that differ: after step 2, unit block.0, parameter block.0.wq: weight differs, first_moment "
            "equal; 4 of 9 parameters\n"
            "settings that differ, a | b:\n"
            "  ranks: 1 | 4\n"
            "  more: (none) | true\n"
            "a: step 4 missing\n");
  Comparison found = equal_runs();
  found.difference = {"eval.jsonl", 1, {{"loss", "1", "2"}}};
  EXPECT_EQ(to_text(found).substr(0, 80),
            "equal to the bit until step 1\nfirst difference: evaluation after step 1, loss: 1");
  found.difference = {"metrics.jsonl", 1, {{"loss", "1", "2"}}};
  EXPECT_EQ(to_text(found).substr(0, 53), "different from step 1 on, the first that both have\nfi");
}

TEST(ComparisonText, IsJsonForPrograms) {
  const json::Value equal = json::parse(to_json(equal_runs()), "equal");
  EXPECT_TRUE(equal.find("equal")->as_boolean());
  EXPECT_EQ(equal.find("equal_until")->as_integer(), 3);
  EXPECT_TRUE(equal.find("difference")->is_null());
  const json::Value different = json::parse(to_json(different_runs()), "different");
  EXPECT_FALSE(different.find("equal")->as_boolean());
  EXPECT_EQ(different.find("difference")->find("columns")->as_array()[0].find("second")->as_text(), "1.25");
  EXPECT_EQ(different.find("state")->find("parameter")->as_text(), "block.0.wq");
  EXPECT_EQ(different.find("settings")->as_array()[0].find("name")->as_text(), "ranks");
}

}  // namespace
}  // namespace shoal::train
