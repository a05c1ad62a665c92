#include "train/compare_runs.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "message_of.h"

namespace shoal::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::message_of;

json::Value line_of(const std::string& text) { return json::parse(text, "line"); }

// Steps first to last, each with a loss of its own.
RunRecord run_of(const std::string& path, int64_t first, int64_t last) {
  RunRecord run;
  run.path = path;
  for (int64_t step = first; step <= last; ++step) {
    run.metrics[step] = line_of(fmt::format(
        R"({{"step": {}, "loss": {}.25, "grad_norm": 0.5, "tokens_per_s": {}, "step_ms": {}, "disk_read_bytes": {}}})",
        step, step, path.size(), path.size(), path.size()));
  }
  return run;
}

json::Value digests_of(int64_t step, const std::string& weight, const std::string& moment) {
  return line_of(fmt::format(R"({{"step": {}, "digest": "{}{}", "units": {{
      "a": {{"a.w": {{"weight": "11", "first_moment": "22"}}}},
      "b": {{"b.w": {{"weight": "{}", "first_moment": "{}"}}, "b.v": {{"weight": "33"}}}}}}}})",
                             step, weight, moment, weight, moment));
}

TEST(CompareRuns, TimesAndBytesAreNotCompared) {
  const Comparison found = compare_runs(run_of("a", 1, 3), run_of("bb", 1, 3));
  EXPECT_TRUE(found.equal());
  EXPECT_EQ(found.equal_until(), 3);
  EXPECT_THAT(found.columns, ElementsAre("loss", "grad_norm"));
  EXPECT_THAT(found.notes, IsEmpty());
}

TEST(CompareRuns, AColumnThatOneRunLacksLaterDiffersAndNoneAtAllIsAnError) {
  RunRecord second = run_of("b", 1, 5);
  second.metrics[3].erase("loss");
  const Comparison found = compare_runs(run_of("a", 1, 5), second);
  ASSERT_TRUE(found.difference);
  EXPECT_EQ(found.difference->step, 3);
  EXPECT_EQ(found.difference->columns[0].name, "loss");
  EXPECT_EQ(found.difference->columns[0].second, "none");
  EXPECT_EQ(compare_runs(second, run_of("a", 1, 5)).difference->columns[0].first, "none");
  RunRecord bare = run_of("b", 1, 5);
  for (auto& [step, line] : bare.metrics) line = line_of(fmt::format(R"({{"step": {}, "step_ms": 5}})", step));
  EXPECT_THAT(message_of([&] { compare_runs(run_of("a", 1, 5), bare); }), HasSubstr("no column in common"));
}

TEST(CompareRuns, FindsTheFirstStepAndItsColumns) {
  RunRecord second = run_of("b", 1, 5);
  second.metrics[3].set("grad_norm", 0.75);
  second.metrics[4].set("loss", 7.0);
  const Comparison found = compare_runs(run_of("a", 1, 5), second);
  ASSERT_TRUE(found.difference);
  EXPECT_EQ(found.difference->step, 3);
  ASSERT_EQ(found.difference->columns.size(), 1u);
  EXPECT_EQ(found.difference->columns[0].name, "grad_norm");
  EXPECT_EQ(found.difference->columns[0].first, "0.5");
  EXPECT_EQ(found.difference->columns[0].second, "0.75");
  EXPECT_EQ(found.equal_until(), 2);
  second.metrics[1].set("loss", 7.0);
  EXPECT_EQ(compare_runs(run_of("a", 1, 5), second).equal_until(), std::nullopt);
}

TEST(CompareRuns, WhatIsNotFiniteIsEqualToItself) {
  RunRecord first = run_of("a", 1, 2), second = run_of("b", 1, 2);
  first.metrics[2].set("loss", json::Value());
  EXPECT_FALSE(compare_runs(first, second).equal());
  second.metrics[2].set("loss", json::Value());
  EXPECT_TRUE(compare_runs(first, second).equal());
  first.metrics[2].set("loss", "NaN");
  second.metrics[2].set("loss", "NaN");
  EXPECT_TRUE(compare_runs(first, second).equal());
}

TEST(CompareRuns, RunsOfOtherLengthsAndWithGapsShareSomeSteps) {
  RunRecord first = run_of("a", 1, 9);
  first.metrics.erase(4);
  first.metrics.erase(5);
  const Comparison found = compare_runs(first, run_of("b", 3, 7));
  EXPECT_TRUE(found.equal());
  EXPECT_THAT(found.steps, ElementsAre(3, 6, 7));
  EXPECT_THAT(found.notes, ElementsAre("a: steps 4 to 5 missing",
                                       "a has steps 1 to 9, b has steps 3 to 7: compared are the 3 that both have"));
  EXPECT_EQ(message_of([&] { compare_runs(run_of("a", 1, 3), run_of("b", 4, 5)); }),
            "[compare] a has steps 1 to 3, b has steps 4 to 5: they have no step in common. Give runs that overlap.");
}

TEST(CompareRuns, EvaluationsComeAfterTheirSteps) {
  RunRecord first = run_of("a", 1, 4), second = run_of("b", 1, 4);
  first.evaluations[2] = line_of(R"({"step": 2, "loss": 1.5, "eval_ms": 3})");
  second.evaluations[2] = line_of(R"({"step": 2, "loss": 1.75, "eval_ms": 4})");
  Comparison found = compare_runs(first, second);
  ASSERT_TRUE(found.difference);
  EXPECT_EQ(found.difference->file, "eval.jsonl");
  EXPECT_EQ(found.equal_until(), 2) << "the step itself is equal";
  second.metrics[2].set("loss", 9.0);
  EXPECT_EQ(compare_runs(first, second).difference->file, "metrics.jsonl");
}

TEST(CompareRuns, DigestsNameTheParameterAndTheState) {
  RunRecord first = run_of("a", 1, 4), second = run_of("b", 1, 4);
  for (RunRecord* run : {&first, &second}) {
    run->digests[2] = digests_of(2, "aa", "bb");
    run->digests[4] = digests_of(4, "cc", run == &first ? "dd" : "ee");
  }
  const Comparison found = compare_runs(first, second);
  EXPECT_FALSE(found.equal());
  EXPECT_THAT(found.digested, ElementsAre(2, 4));
  ASSERT_TRUE(found.state);
  EXPECT_EQ(found.state->step, 4);
  EXPECT_EQ(found.state->unit, "b");
  EXPECT_EQ(found.state->parameter, "b.w");
  ASSERT_EQ(found.state->states.size(), 1u);
  EXPECT_EQ(found.state->states[0].name, "first_moment");
  EXPECT_THAT(found.state->equal, ElementsAre("weight"));
  EXPECT_EQ(found.state->differing, 1);
  EXPECT_EQ(found.state->of, 3);
  EXPECT_EQ(found.equal_until(), 3);
}

TEST(CompareRuns, OtherParametersAndOtherStatesDiffer) {
  RunRecord first = run_of("a", 1, 1), second = run_of("b", 1, 1);
  first.digests[1] = line_of(R"({"step": 1, "units": {"u": {"w": {"weight": "1"}}}})");
  second.digests[1] = line_of(R"({"step": 1, "units": {"u": {"w": {"weight": "1"}, "more": {"weight": "1"}}}})");
  EXPECT_EQ(compare_runs(first, second).state->parameter, "more");
  EXPECT_EQ(compare_runs(second, first).state->parameter, "more");
  second.digests[1] = line_of(R"({"step": 1, "units": {"u": {"w": {"weight": "1", "first_moment": "2"}}}})");
  EXPECT_EQ(compare_runs(first, second).state->states.at(0).name, "first_moment");
  second.digests[1] = line_of(R"({"step": 1, "units": 3})");
  EXPECT_THAT(message_of([&] { compare_runs(first, second); }), HasSubstr("[b] the digests of step 1 are not as"));
}

TEST(CompareRuns, SettingsThatDifferAreNamed) {
  RunRecord first = run_of("a", 1, 1), second = run_of("b", 1, 1);
  first.settings = {{"seed", "1"}, {"ranks", "1"}, {"zero_optimization.stage", "2"}};
  second.settings = {{"seed", "1"}, {"ranks", "4"}, {"more", "true"}};
  const std::vector<TwoValues> found = compare_runs(first, second).settings;
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].name + " " + found[0].first + " " + found[0].second, "ranks 1 4");
  EXPECT_EQ(found[1].name + " " + found[1].first + " " + found[1].second, "zero_optimization.stage 2 ");
  EXPECT_EQ(found[2].name + " " + found[2].first + " " + found[2].second, "more  true");
  second.settings.clear();
  EXPECT_THAT(compare_runs(first, second).settings, IsEmpty()) << "of a file alone nothing is known";
}

TEST(CompareRuns, AColumnOfOneRunIsNoted) {
  RunRecord first = run_of("a", 1, 2), second = run_of("b", 1, 2);
  first.metrics[1].set("moonlight", 3);
  first.metrics[2].set("digest", "00");
  const Comparison found = compare_runs(first, second);
  EXPECT_TRUE(found.equal());
  EXPECT_THAT(found.notes, ElementsAre("only a has the column moonlight: not compared"));
}

}  // namespace
}  // namespace shoal::train
