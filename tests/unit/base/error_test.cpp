#include "shoal/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace shoal {

TEST(Error, ReadsAsPlaceThenMessage) {
  const Error error("config zero_optimization.stage", "4 is not a ZeRO stage. Use 0, 1, 2 or 3.");
  EXPECT_STREQ(error.what(), "[config zero_optimization.stage] 4 is not a ZeRO stage. Use 0, 1, 2 or 3.");
  EXPECT_EQ(error.place(), "config zero_optimization.stage");
}

TEST(Error, CutsOffWhatNobodyReads) {
  const std::string path(900, 'p');
  EXPECT_EQ(Error(path, "is not there.").what(), "[" + path + "] is not there.");
  const std::string word(20000, 'w');
  EXPECT_EQ(std::string(Error("x", word + " is no key.").what()),
            "[x] " + word.substr(0, 200) + "[... 19800 bytes] is no key.");
  std::string many;
  for (int i = 0; i < 20000; ++i) many += "line\n";
  const std::string text = Error("x", many).what();
  EXPECT_LT(text.size(), 16100u);
  EXPECT_TRUE(text.ends_with(" bytes more]")) << text.substr(text.size() - 40);
}

TEST(Error, ShowsWhatATerminalWouldActOnAndWhatIsNoText) {
  const auto shown = [](const std::string& text) { return std::string(Error("x", text).what()).substr(4); };
  EXPECT_EQ(shown("\x1b[2J and \a\b\x7f\r."), "\\x1b[2J and \\x07\\x08\\x7f\\x0d.");
  EXPECT_EQ(shown(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(shown("line\nnext\tcolumn"), "line\nnext\tcolumn");
  EXPECT_EQ(shown("\u00e9 \u20ac \U0001f41f"), "\u00e9 \u20ac \U0001f41f");
  EXPECT_EQ(shown("\xc2\x9b"), "\\xc2\\x9b") << "a control character of two bytes";
  for (const char* bytes :
       {"\xff", "\xc3(", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf0\x9f\x90"}) {
    const std::string text = shown(bytes);
    EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x80; })) << text;
    EXPECT_EQ(text.substr(0, 2), "\\x");
  }
}

}  // namespace shoal
