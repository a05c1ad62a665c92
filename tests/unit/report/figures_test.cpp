#include "report/figures.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "shoal/config.h"

namespace shoal::report {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

RunFolder run_of(size_t steps, double ms) {
  RunFolder run;
  for (size_t i = 0; i < steps; ++i) {
    run.steps.steps.push_back(static_cast<int64_t>(i) + 1);
    const auto add = [&](const char* name, double value) { run.steps.values[name].push_back(value); };
    add("loss", 3.0 - 0.1 * static_cast<double>(i));
    add("step_ms", i == 0 ? 50 * ms : ms);
    add("tokens_per_s", 1000);
    add("skipped", 0);
    add("data_ms", 1);
    add("wait_comm_ms", 5);
    add("wait_weights_ms", 2);
    add("wait_gradients_ms", 3);
    add("wait_losses_ms", 0);
    add("carried_ms", 20);
  }
  return run;
}

double number(const json::Value& object, const char* key) { return object.find(key)->as_number(); }

std::string parts_text(const json::Value& parts) {
  std::string text;
  for (const json::Value& part : parts.as_array()) {
    text += (text.empty() ? "" : ", ") + part.find("name")->as_text() + " " + json::write(*part.find("ms"));
  }
  return text;
}

TEST(Summary, IsOfAMedianStep) {
  RunFolder run = run_of(9, 10);
  run.about = json::parse(R"({"flops_per_token": 1e9, "peak_flops": 1e12, "ranks": 2})", "about");
  run.evaluations.steps = {4, 8};
  run.evaluations.values["loss"] = {2.5, 2.75};
  const json::Value summary = summary_of(run);
  EXPECT_EQ(number(summary, "last_step"), 9);
  EXPECT_EQ(number(summary, "median_step_ms"), 10) << "the first step starts everything";
  EXPECT_DOUBLE_EQ(number(summary, "mfu"), 0.5);
  EXPECT_DOUBLE_EQ(number(summary, "overlap"), 0.75);
  EXPECT_DOUBLE_EQ(number(summary, "wait_share"), 0.5);
  EXPECT_EQ(number(*summary.find("best_evaluation"), "loss"), 2.5);
  EXPECT_EQ(number(*summary.find("best_evaluation"), "step"), 4);
  EXPECT_DOUBLE_EQ(number(summary, "steps_seconds"), 0.58);
}

TEST(Summary, SaysNothingThatWasNotMeasured) {
  for (const size_t steps : {0, 1}) {
    RunFolder run = run_of(steps, 10);
    run.steps.values.erase("carried_ms");
    const json::Value summary = summary_of(run);
    EXPECT_EQ(number(summary, "steps"), static_cast<double>(steps));
    EXPECT_TRUE(summary.find("overlap")->is_null());
    EXPECT_TRUE(summary.find("mfu")->is_null());
    EXPECT_TRUE(summary.find("best_evaluation")->is_null());
    EXPECT_EQ(summary.find("median_step_ms")->is_null(), steps == 0);
  }
}

TEST(StepParts, AddUpToAStep) {
  RunFolder run = run_of(9, 10);
  EXPECT_EQ(parts_text(step_parts(run)), "compute 4, data 1, wait: weights 2, wait: gradients 3");
  run.events.push_back(json::parse(R"({"event": "save", "step": 9, "ms": 18})", "event"));
  EXPECT_EQ(parts_text(step_parts(run)), "compute 4, data 1, wait: weights 2, wait: gradients 3, save 2");
}

TEST(StepParts, OfAnOlderRunTheWaitHasNoCause) {
  RunFolder run = run_of(9, 10);
  for (const char* column : {"wait_weights_ms", "wait_gradients_ms", "wait_losses_ms", "data_ms"})
    run.steps.values.erase(column);
  EXPECT_EQ(parts_text(step_parts(run)), "compute 5, wait: ranks 5");
  EXPECT_EQ(parts_text(step_parts(run_of(0, 10))), "");
}

TEST(Ranks, TheOneThatIsWaitedForWorksLongest) {
  RunFolder run = run_of(20, 10);
  run.steps.values["step_ms"][0] = 10;
  for (
      const char* line :
      {R"({"step": 10, "steps": 10, "wait_comm_ms": [6, 1], "wait_host_ms": [0, 0], "wait_disk_ms": [0, 1], "data_ms": [1, 1]})",
       R"({"step": 20, "steps": 10, "wait_comm_ms": [4, 1], "wait_host_ms": [0, 0], "wait_disk_ms": [0, 1], "data_ms": [1, 1]})"}) {
    run.ranks.push_back(json::parse(line, "ranks"));
  }
  const json::Array ranks = ranks_of(run).as_array();
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_DOUBLE_EQ(number(ranks[0], "wait_comm_ms"), 5);
  EXPECT_DOUBLE_EQ(number(ranks[0], "own_ms"), 5);
  EXPECT_DOUBLE_EQ(number(ranks[1], "own_ms"), 8);
}

TEST(Ranks, OfARunThatWentOnAtAnotherNumberTheLastCounts) {
  RunFolder run = run_of(20, 10);
  for (
      const char* line :
      {R"({"step": 10, "steps": 10, "wait_comm_ms": [6, 1, 9], "wait_host_ms": [0, 0, 0], "wait_disk_ms": [0, 1, 0], "data_ms": [1, 1, 1]})",
       R"({"step": 15, "steps": 5, "wait_comm_ms": "what", "wait_host_ms": [0], "wait_disk_ms": [0], "data_ms": [0]})",
       R"({"step": 20, "steps": 5, "wait_comm_ms": [4, 1], "wait_host_ms": [0, 0], "wait_disk_ms": [0, 1], "data_ms": [1, 1]})"}) {
    run.ranks.push_back(json::parse(line, "ranks"));
  }
  const json::Array ranks = ranks_of(run).as_array();
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_DOUBLE_EQ(number(ranks[0], "wait_comm_ms"), 4);
  EXPECT_TRUE(ranks_of(run_of(3, 10)).as_array().empty());
}

TEST(Memory, IsOfTheLastLineThatSaysIt) {
  RunFolder run;
  EXPECT_TRUE(memory_of(run).is_null());
  for (const char* line :
       {R"({"event": "memory", "step": 1})", R"({"event": "memory", "step": 2})", R"({"event": "end", "step": 2})"}) {
    run.events.push_back(json::parse(line, "event"));
  }
  EXPECT_EQ(number(memory_of(run), "step"), 2);
}

TEST(ConfigKeys, EachHasItsFate) {
  RunFolder run;
  EXPECT_TRUE(config_keys(run).as_array().empty());
  run.config = json::parse(Config::from_text(R"({"train_batch_size": 8, "zero_optimization": {"stage": 2}})").to_json(),
                           "config");
  std::string stage, clipping;
  bool no_effect = false, refused = false;
  const json::Value rows = config_keys(run);
  for (const json::Value& row : rows.as_array()) {
    const std::string key = row.find("key")->as_text(), fate = row.find("fate")->as_text();
    const std::string text =
        row.find("value")->as_text() + " " + fate + (row.find("changed")->as_boolean() ? " changed" : "");
    if (key == "zero_optimization.stage") stage = text;
    if (key == "zero_optimization.overlap_comm") clipping = text;
    no_effect = no_effect || (fate == "no effect" && !row.find("why")->as_text().empty());
    refused = refused || fate == "refused";
  }
  EXPECT_EQ(stage, "2 carried out changed");
  EXPECT_EQ(clipping, "true carried out");
  EXPECT_TRUE(no_effect);
  EXPECT_TRUE(refused);
}

TEST(Marks, AreSkippedStepsLossesThatAreLostAndOutliers) {
  RunFolder run = run_of(100, 10);
  run.steps.values["skipped"][4] = 1;
  run.steps.values["loss"][6] = kNone;
  run.steps.values["step_ms"][50] = 500;
  std::string text;
  const json::Value marks = marks_of(run);
  for (const json::Value& mark : marks.find("marks")->as_array()) {
    text += mark.find("kind")->as_text() + " " + json::write(*mark.find("step")) + "\n";
  }
  EXPECT_EQ(text, "skipped 5\nloss is not finite 7\noutlier 1\noutlier 51\n") << "the first step took 500 ms too";
}

// A run of nothing but NaN, longer than a page has room for marks.
TEST(Marks, HaveALimit) {
  RunFolder run = run_of(2000, 10);
  for (double& loss : run.steps.values["loss"]) loss = kNone;
  const json::Value marks = marks_of(run);
  EXPECT_EQ(marks.find("marks")->as_array().size(), 301u);
  EXPECT_EQ(number(marks, "left_out"), 1700);
}

}  // namespace
}  // namespace shoal::report
