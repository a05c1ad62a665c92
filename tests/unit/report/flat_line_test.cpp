#include "report/flat_line.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <string>

namespace shoal::report {
namespace {

struct Read {
  bool whole = false;
  std::map<std::string, double> values;
};
Read read(const std::string& line) {
  Read read;
  read.whole = read_flat_line(line, [&](std::string_view key, double value) { read.values[std::string(key)] = value; });
  return read;
}

TEST(FlatLine, ReadsNumbersTruthsAndLeavesTextsOut) {
  const Read got = read(R"({"step": 3, "loss": 2.5e-3, "skipped": true, "more": false, "digest": "a\"b", "n": -1} )");
  EXPECT_TRUE(got.whole);
  EXPECT_EQ(got.values,
            (std::map<std::string, double>{{"step", 3}, {"loss", 2.5e-3}, {"skipped", 1}, {"more", 0}, {"n", -1}}));
  EXPECT_TRUE(read("{}").whole);
  EXPECT_TRUE(read("{\"step\": 1}\r").whole);
}

TEST(FlatLine, OfAListTheLargestNumberIsSeen) {
  const Read got = read(R"({"step": 3, "busiest_experts": [1.5, 2.25, 2], "none": []})");
  EXPECT_TRUE(got.whole);
  EXPECT_EQ(got.values.at("busiest_experts"), 2.25);
  EXPECT_TRUE(std::isnan(got.values.at("none")));
}

TEST(FlatLine, WhatIsNotFiniteIsNaN) {
  for (const char* word : {"null", "NaN", "Infinity", "-Infinity"}) {
    const Read got = read(std::string("{\"loss\": ") + word + ", \"step\": 2}");
    EXPECT_TRUE(got.whole) << word;
    EXPECT_TRUE(std::isnan(got.values.at("loss"))) << word;
    EXPECT_EQ(got.values.at("step"), 2);
  }
}

TEST(FlatLine, ALineThatIsCutOffAnywhereIsNotWhole) {
  const std::string line = R"({"step": 12, "loss": 2.5, "digest": "ab", "list": [1, 2], "skipped": false})";
  EXPECT_TRUE(read(line).whole);
  for (size_t length = 0; length < line.size(); ++length) EXPECT_FALSE(read(line.substr(0, length)).whole) << length;
}

TEST(FlatLine, OtherThingsAreNoFlatLines) {
  for (const char* line : {"", "[1]", "{\"a\": {}}", "{\"a\": [[1]]}", "{\"a\": [1,]}", "{\"a\" 1}", "{a: 1}",
                           "{\"a\": 1} x", "{\"a\": 1,}"}) {
    EXPECT_FALSE(read(line).whole) << line;
  }
}

}  // namespace
}  // namespace shoal::report
