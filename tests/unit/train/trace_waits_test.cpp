#include "train/trace_waits.h"

#include <gtest/gtest.h>

#include <sstream>

#include "base/json.h"
#include "message_of.h"

namespace shoal::train {
namespace {

constexpr int64_t kBase = 1'790'857'026'000'000'000;

// As torch's profiler writes it, with the text in its only event.
std::string trace_with(const std::string& text) {
  return R"(
  {
    "schemaVersion": 1,
    "deviceProperties": [
    ],
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1790857026000000000,
  "traceEvents": [
  {
    "ph": "X", "name": "aten::ones", "pid": 7, "tid": 7, "ts": 40.5, "dur": 3, "args": {"text": ")" +
         text + R"("}
  }
  ],
  "traceName": "trace.json"
})";
}

std::string merged(const std::string& trace, const std::vector<Wait>& waits) {
  std::istringstream in(trace);
  std::ostringstream out;
  copy_with_waits(in, waits, out);
  return out.str();
}

TEST(TraceWaits, ArePutInLanesOfTheirNames) {
  EXPECT_EQ(events_of_waits({{"host: states", kBase + 1'000'001, kBase + 1'002'501},
                             {"ranks", kBase + 1'500'000, kBase + 2'000'000},
                             {"host: states", kBase + 1'700'020, kBase + 3'700'000}},
                            kBase),
            R"(  {"ph": "M", "name": "process_name", "pid": 1000000000, "tid": 0, "args": {"name": "waits"}},
  {"ph": "M", "name": "process_sort_index", "pid": 1000000000, "tid": 0, "args": {"sort_index": -1}},
  {"ph": "M", "name": "thread_name", "pid": 1000000000, "tid": 1, "args": {"name": "host: states"}},
  {"ph": "X", "cat": "wait", "name": "host: states", "pid": 1000000000, "tid": 1, "ts": 1000.001, "dur": 2.500},
  {"ph": "M", "name": "thread_name", "pid": 1000000000, "tid": 2, "args": {"name": "ranks"}},
  {"ph": "X", "cat": "wait", "name": "ranks", "pid": 1000000000, "tid": 2, "ts": 1500.000, "dur": 500.000},
  {"ph": "X", "cat": "wait", "name": "host: states", "pid": 1000000000, "tid": 1, "ts": 1700.020, "dur": 1999.980})");
}

// Events of one lane that overlap would be drawn as if one had called the other.
TEST(TraceWaits, ThatOverlapGetAFurtherLane) {
  const json::Value events = json::parse(
      "[" +
          events_of_waits(
              {{"disk", kBase, kBase + 10}, {"disk", kBase + 5, kBase + 15}, {"disk", kBase + 10, kBase + 12}}, kBase) +
          "]",
      "events");
  std::vector<int64_t> lanes;
  for (const json::Value& event : events.as_array()) {
    if (event.find("ph")->as_text() == "X") lanes.push_back(event.find("tid")->as_integer());
  }
  EXPECT_EQ(lanes, (std::vector<int64_t>{1, 2, 1}));
}

TEST(TraceWaits, StandBesideTheEventsOfATrace) {
  const json::Value trace =
      json::parse(merged(trace_with("\\\"traceEvents\\\": ["), {{"a \"quoted\" name", kBase + 5, kBase + 7}}), "trace");
  const json::Array& events = trace.find("traceEvents")->as_array();
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[3].find("name")->as_text(), "a \"quoted\" name");
  EXPECT_EQ(events[3].find("ts")->as_number(), 0.005);
  EXPECT_EQ(events[4].find("name")->as_text(), "aten::ones");
  EXPECT_EQ(trace.find("traceName")->as_text(), "trace.json");
  EXPECT_EQ(trace.find("baseTimeNanoseconds")->as_integer(), kBase);
}

TEST(TraceWaits, LeaveTheRestOfALongTraceAsItIs) {
  for (const size_t nbytes : {size_t{0}, size_t{1} << 20, (size_t{1} << 20) + 1, size_t{5} << 20}) {
    const std::string trace = trace_with(std::string(nbytes, 'x'));
    const std::string with = merged(trace, {{"disk", kBase, kBase + 10}});
    const std::string rest = trace.substr(trace.find("[\n  {\n") + 1);
    ASSERT_GT(with.size(), rest.size());
    EXPECT_TRUE(with.ends_with("," + rest)) << nbytes;
    EXPECT_EQ(with.size(), trace.size() + events_of_waits({{"disk", kBase, kBase + 10}}, kBase).size() + 2) << nbytes;
  }
}

TEST(TraceWaits, AreTheOnlyEventsOfAnEmptyTrace) {
  const std::string empty = R"({"baseTimeNanoseconds": 5, "traceEvents": [ ]})";
  const json::Value trace = json::parse(merged(empty, {{"disk", 10, 12}}), "trace");
  EXPECT_EQ(trace.find("traceEvents")->as_array().size(), 4u);
}

TEST(TraceWaits, AreNotPutIntoAnotherFile) {
  for (const char* other : {"", "[]", R"({"traceEvents": []})", R"({"traceEvents": [], "baseTimeNanoseconds": 5})"}) {
    EXPECT_NE(testing::message_of([&] { merged(other, {{"disk", 10, 12}}); }), "") << other;
  }
}

}  // namespace
}  // namespace shoal::train
