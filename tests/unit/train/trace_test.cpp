#include "train/trace.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "base/json.h"
#include "base/wait_log.h"
#include "message_of.h"
#include "temp_folder.h"

namespace shoal::train {
namespace {

using std::chrono::milliseconds;

TEST(Trace, ReadsAStepOrASpanOfThem) {
  EXPECT_EQ(read_step_span("3").first, 3);
  EXPECT_EQ(read_step_span("3").last, 3);
  EXPECT_EQ(read_step_span("3-15").last, 15);
  for (const char* wrong : {"", "0", "-2", "3-", "5-3", "3-5x", "three"}) {
    EXPECT_NE(testing::message_of([&] { read_step_span(wrong); }).find("names no steps"), std::string::npos) << wrong;
  }
}

TEST(Trace, ReadsWhichRanks) {
  EXPECT_EQ(read_rank_list("all", 3), (std::set<int>{0, 1, 2}));
  EXPECT_EQ(read_rank_list("0", 1), (std::set<int>{0}));
  EXPECT_EQ(read_rank_list("0,2-3", 4), (std::set<int>{0, 2, 3}));
  for (const char* wrong : {"", "-1", "1-", "3-2", "0,", "x", "0;1", "alle"}) {
    EXPECT_NE(testing::message_of([&] { read_rank_list(wrong, 9); }).find("[--trace-ranks]"), std::string::npos)
        << wrong;
  }
  EXPECT_EQ(testing::message_of([] { read_rank_list("1-4", 4); }),
            "[--trace-ranks] \"1-4\" names rank 4, and there are 4. Write all, 0, or 0,2-3.");
  EXPECT_EQ(trace_name(0), "trace.json");
  EXPECT_EQ(trace_name(3), "trace-rank-3.json");
}

TEST(Trace, HasTheRangesOfStepsAndPhases) {
  const testing::TempFolder folder;
  Trace trace({1, 1}, folder / "trace.json");
  { const TraceRange before("before"); }
  trace.begin_step(1);
  {
    const TraceRange step("step 1");
    const TraceRange phase("forward");
    at::ones({10}).sum();
  }
  EXPECT_NE(trace.end_step(1), "");
  const json::Value file = json::parse(folder.read("trace.json"), "trace.json");
  std::map<std::string, double> begins;
  for (const json::Value& event : file.find("traceEvents")->as_array()) {
    if (event.find("dur") != nullptr) begins[event.find("name")->as_text()] = event.find("ts")->as_number();
  }
  EXPECT_EQ(begins.count("before"), 0u);
  ASSERT_EQ(begins.count("step 1"), 1u);
  ASSERT_EQ(begins.count("forward"), 1u);
  EXPECT_LE(begins["step 1"], begins["forward"]);
}

TEST(Trace, CountsTimeThatIntervalsShareOnce) {
  EXPECT_EQ(covered({}), 0u);
  EXPECT_EQ(covered({{5, 9}, {0, 2}}), 6u);
  EXPECT_EQ(covered({{0, 10}, {2, 3}, {8, 12}, {12, 13}}), 13u);
}

TEST(Trace, WritesTheStepsItWasAskedFor) {
  const testing::TempFolder folder;
  const std::string path = folder.path() + "/trace.json";
  Trace trace({2, 3}, path);
  for (int64_t step = 1; step <= 4; ++step) {
    trace.begin_step(step);
    at::ones({4, static_cast<int64_t>(1000 + step)}).sum();
    const std::string said = trace.end_step(step);
    EXPECT_EQ(said.find(path) != std::string::npos, step == 3) << said;
  }
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_NE(text.str().find("traceEvents"), std::string::npos);
  EXPECT_NE(text.str().find("aten::sum"), std::string::npos);
}

TEST(Trace, ShowsWhatWasWaitedForBesideWhatRan) {
  const testing::TempFolder folder;
  Trace trace({2, 3}, folder / "trace.json");
  std::string said;
  for (int64_t step = 1; step <= 4; ++step) {
    trace.begin_step(step);
    at::ones({1000});
    std::this_thread::sleep_for(milliseconds(3));
    const int64_t now_ns = WaitLog::unix_now_ns();
    for (int thread = 0; thread < 2; ++thread) WaitLog::of_process().add("disk", now_ns - 2'000'000, now_ns);
    if (step == 3) WaitLog::of_process().add_until_now("ranks", milliseconds(1));
    at::zeros({1000});
    said += trace.end_step(step);
  }
  EXPECT_THAT(said, ::testing::ContainsRegex("; waits: disk 4\\.0 ms, ranks 1\\.0 ms$"));
  EXPECT_EQ(WaitLog::of_process().period(), 0u);

  std::map<std::string, std::vector<double>> begins, ends;
  const json::Value file = json::parse(folder.read("trace.json"), "trace.json");
  for (const json::Value& event : file.find("traceEvents")->as_array()) {
    if (event.find("dur") == nullptr) continue;
    const double begin = event.find("ts")->as_number();
    begins[event.find("name")->as_text()].push_back(begin);
    ends[event.find("name")->as_text()].push_back(begin + event.find("dur")->as_number());
  }
  ASSERT_EQ(begins["disk"].size(), 4u);
  ASSERT_EQ(begins["ranks"].size(), 1u);
  ASSERT_EQ(begins["aten::ones"].size(), 2u);
  ASSERT_EQ(begins["aten::zeros"].size(), 2u);
  const double slack = 100;  // microseconds: the profiler reads another clock, and compares it with this one
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_GT(begins["disk"][i], begins["aten::ones"][i / 2] - slack);
    EXPECT_LT(ends["disk"][i], begins["aten::zeros"][i / 2] + slack);
  }
}

TEST(Trace, EndsWithARunThatIsStopped) {
  const testing::TempFolder folder;
  Trace trace({2, 9}, folder / "trace.json");
  trace.begin_step(1);
  EXPECT_EQ(trace.end_with(1), "") << "it has not begun";
  trace.begin_step(2);
  at::ones({10}).sum();
  EXPECT_EQ(trace.end_step(2), "");
  EXPECT_THAT(trace.end_with(2), ::testing::StartsWith("trace of steps 2 to 2: "));
  EXPECT_NE(folder.read("trace.json").find("aten::sum"), std::string::npos);
  EXPECT_EQ(trace.end_with(2), "");
}

TEST(Trace, OneThatCannotBeWrittenIsSaid) {
  const testing::TempFolder folder;
  std::filesystem::create_directories(folder / "trace.json/in the way");
  Trace trace({1, 1}, folder / "trace.json");
  trace.begin_step(1);
  at::ones({10}).sum();
  EXPECT_NE(testing::message_of([&] { trace.end_step(1); }).find("was not written"), std::string::npos);
}

TEST(Trace, OneThatIsNotOverIsDropped) {
  const testing::TempFolder folder;
  { Trace({1, 9}, folder.path() + "/trace.json").begin_step(1); }
  EXPECT_EQ(WaitLog::of_process().period(), 0u);
  Trace again({1, 1}, folder.path() + "/again.json");
  again.begin_step(1);
  EXPECT_NE(again.end_step(1), "");
}

}  // namespace
}  // namespace shoal::train
