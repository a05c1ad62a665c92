#include "launch/line_cutter.h"

#include <gtest/gtest.h>

namespace shoal::launch {
namespace {

using Lines = std::vector<std::string>;

TEST(LineCutter, GivesWholeLinesWhateverTheBytesComeIn) {
  const std::string text = "one\ntwo\r\n\nprogress 1\rprogress 2\rdone\nrest";
  const Lines whole = {"one\n", "two\r\n", "\n", "progress 1\r", "progress 2\r", "done\n"};
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    LineCutter cutter;
    Lines lines;
    for (size_t at = 0; at < text.size(); at += piece) {
      for (std::string& line : cutter.take(std::string_view(text).substr(at, piece))) lines.push_back(std::move(line));
    }
    EXPECT_EQ(lines, whole) << "in pieces of " << piece;
    EXPECT_EQ(cutter.finish(), Lines{"rest\n"});
    EXPECT_EQ(cutter.finish(), Lines{});
  }
}

TEST(LineCutter, CutsALineThatNeverEnds) {
  LineCutter cutter;
  const Lines lines = cutter.take(std::string((size_t{1} << 20) + 5, 'x'));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].size(), (size_t{1} << 20) + 1);
  EXPECT_EQ(cutter.finish(), Lines{"xxxxx\n"});
}

TEST(LastLines, KeepsTheLastOnesWithoutEmptyLines) {
  LastLines last(2);
  EXPECT_EQ(last.text(), "");
  for (const char* line : {"a\n", "\n", "b\r\n", "c"}) last.add(line);
  EXPECT_EQ(last.text(), "b\nc");
}

TEST(Prefixed, PutsThePrefixBeforeEachLine) {
  EXPECT_EQ(prefixed("[rank 1] ", {"a\n", "b\r"}), "[rank 1] a\n[rank 1] b\r");
  EXPECT_EQ(prefixed("[rank 1] ", {}), "");
}

}  // namespace
}  // namespace shoal::launch
