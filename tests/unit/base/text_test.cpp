#include "base/text.h"

#include <gtest/gtest.h>

namespace shoal {

TEST(Text, FormatsBytesWithBinaryUnits) {
  EXPECT_EQ(format_nbytes(0), "0 B");
  EXPECT_EQ(format_nbytes(1023), "1023 B");
  EXPECT_EQ(format_nbytes(1536), "1.5 KiB");
  EXPECT_EQ(format_nbytes(80ull << 30), "80 GiB");
}

TEST(Text, GroupsDigitsOfCounts) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(-1234567), "-1,234,567");
}

TEST(Text, NearestWordFindsTyposOnly) {
  const std::vector<std::string> words = {"overlap_comm", "reduce_bucket_size", "stage"};
  EXPECT_EQ(nearest_word("overlap_com", words), "overlap_comm");
  EXPECT_EQ(nearest_word("stag", words), "stage");
  EXPECT_EQ(nearest_word("completely_different", words), "");
}

TEST(Text, ShapesHaveBrackets) {
  EXPECT_EQ(format_shape({}), "[]");
  EXPECT_EQ(format_shape({2, 3}), "[2, 3]");
}

TEST(Text, AQuotedWordIsOneWordOfAShell) {
  EXPECT_EQ(quote_for_shell(""), "''");
  EXPECT_EQ(quote_for_shell("a b$c"), "'a b$c'");
  EXPECT_EQ(quote_for_shell("it's"), "'it'\\''s'");
}

TEST(Text, SplitsAtEverySeparator) {
  using Parts = std::vector<std::string>;
  EXPECT_EQ(split("a,,bc", ','), (Parts{"a", "", "bc"}));
  EXPECT_EQ(split("a,", ','), (Parts{"a", ""}));
  EXPECT_EQ(split("", ','), Parts{""});
}

TEST(Text, HashIsStable) {
  EXPECT_EQ(hash_text("shoal"), hash_text("shoal"));
  EXPECT_NE(hash_text("a"), hash_text("b"));
}

TEST(FirstLine, EndsBeforeTheBacktrace) {
  EXPECT_EQ(first_line("what is wrong\nframe 0\nframe 1"), "what is wrong");
  EXPECT_EQ(first_line("one line"), "one line");
  EXPECT_EQ(first_line(""), "");
  EXPECT_EQ(first_line("\nrest"), "");
}

}  // namespace shoal
