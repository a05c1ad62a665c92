#include "base/headway.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

struct Heard {
  std::vector<std::string> lines;
  Headway::Clock::time_point begin = Headway::Clock::now();
  Headway headway{{.what = "weights", .things = "units", .total = 40, .every = 5s, .begin = begin},
                  [this](const std::string& line) { lines.push_back(line); }};
};

TEST(Headway, WhatIsDoneSoonSaysNothing) {
  Heard heard;
  for (int done = 1; done <= 40; ++done) heard.headway.reached(done, heard.begin + done * 100ms);
  EXPECT_THAT(heard.lines, IsEmpty());
}

TEST(Headway, LongWorkSpeaksEveryFewSecondsAndAtItsEnd) {
  Heard heard;
  for (int done = 1; done <= 40; ++done) heard.headway.reached(done, heard.begin + done * 300ms + 10ms);
  EXPECT_THAT(heard.lines, ElementsAre("weights: 17 of 40 units, 42 %, 5 s", "weights: 34 of 40 units, 85 %, 10 s",
                                       "weights: 40 of 40 units, 100 %, 12 s"));
}

}  // namespace
}  // namespace shoal
