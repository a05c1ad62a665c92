#include "base/progress.h"

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
  Progress progress{"weights", "units", 40, [this](const std::string& line) { lines.push_back(line); }, 5s};
  Progress::Clock::time_point begin = Progress::Clock::now();
};

TEST(Progress, WhatIsDoneSoonSaysNothing) {
  Heard heard;
  for (int done = 1; done <= 40; ++done) heard.progress.reached(done, heard.begin + done * 100ms);
  EXPECT_THAT(heard.lines, IsEmpty());
}

TEST(Progress, LongWorkSpeaksEveryFewSecondsAndAtItsEnd) {
  Heard heard;
  for (int done = 1; done <= 40; ++done) heard.progress.reached(done, heard.begin + done * 300ms + 10ms);
  EXPECT_THAT(heard.lines, ElementsAre("weights: 17 of 40 units, 42 %, 5 s", "weights: 34 of 40 units, 85 %, 10 s",
                                       "weights: 40 of 40 units, 100 %, 12 s"));
}

}  // namespace
}  // namespace shoal
