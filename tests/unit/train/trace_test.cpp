#include "train/trace.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "message_of.h"
#include "temp_folder.h"

namespace shoal::train {
namespace {

TEST(Trace, ReadsAStepOrASpanOfThem) {
  EXPECT_EQ(read_step_span("3").first, 3);
  EXPECT_EQ(read_step_span("3").last, 3);
  EXPECT_EQ(read_step_span("3-15").last, 15);
  for (const char* wrong : {"", "0", "-2", "3-", "5-3", "3-5x", "three"}) {
    EXPECT_NE(testing::message_of([&] { read_step_span(wrong); }).find("names no steps"), std::string::npos) << wrong;
  }
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

TEST(Trace, OneThatIsNotOverIsDropped) {
  const testing::TempFolder folder;
  { Trace({1, 9}, folder.path() + "/trace.json").begin_step(1); }
  Trace again({1, 1}, folder.path() + "/again.json");
  again.begin_step(1);
  EXPECT_NE(again.end_step(1), "");
}

}  // namespace
}  // namespace shoal::train
