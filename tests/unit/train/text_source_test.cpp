#include "train/text_source.h"

#include <gmock/gmock.h>

#include <vector>

#include "message_of.h"
#include "temp_folder.h"

namespace shoal::train {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::TempFolder;

std::string read(const TokenSource& source, int64_t begin, int64_t numel) {
  std::vector<int64_t> tokens(static_cast<size_t>(numel));
  source.read(begin, numel, tokens.data());
  return {tokens.begin(), tokens.end()};
}

TEST(TextSource, AFileIsItsBytes) {
  const TempFolder folder;
  const auto source = open_text(folder.write("a.txt", "ab\xff"));
  EXPECT_EQ(source->numel(), 3);
  EXPECT_EQ(source->vocab(), 256);
  int64_t last = 0;
  source->read(2, 1, &last);
  EXPECT_EQ(last, 255);
}

TEST(TextSource, AFolderIsItsFilesInTheOrderOfTheirPaths) {
  const TempFolder folder;
  folder.write("c", "C");
  folder.write("b/z", "BZ");
  folder.write("b/y", "");
  folder.write("a", "AAA");
  folder.write(".hidden", "no");
  folder.write(".git/x", "no");
  const auto source = open_text(folder.path());
  EXPECT_EQ(source->describe(), "text:" + folder.path() + " (3 files)");
  EXPECT_EQ(read(*source, 0, source->numel()), "AAABZC");
  for (int64_t begin = 0; begin <= 6; ++begin) {
    for (int64_t numel = 0; begin + numel <= 6; ++numel) {
      EXPECT_EQ(read(*source, begin, numel), std::string("AAABZC").substr(size_t(begin), size_t(numel)));
    }
  }
}

TEST(TextSource, NothingToReadIsAnError) {
  const TempFolder folder;
  EXPECT_THAT(message_of([&] { open_text(folder.path()); }), HasSubstr("holds no file"));
  EXPECT_THAT(message_of([&] { open_text(folder / "none"); }), HasSubstr("does not exist"));
  EXPECT_THAT(message_of([&] { open_text(folder.write("empty", "")); }), HasSubstr("is empty"));
  EXPECT_THAT(message_of([&] { open_text(folder.path()); }), HasSubstr("holds no file"));
}

TEST(TextSource, WhatIsNoTextIsAnErrorAndRowsOfJsonAreDoubted) {
  const TempFolder folder;
  const std::string binary = folder.write("model", std::string("GGUF\0\0\0", 7));
  EXPECT_THAT(message_of([&] { open_text(binary); }), HasSubstr("is no text: byte 4 is zero."));
  EXPECT_THAT(message_of([&] { open_text(folder.path()); }), HasSubstr(binary + "] is no text"));
  EXPECT_THAT(open_text(folder.write("chat.jsonl", "{\"messages\": []}\n{\"messages\": []}\n"))->doubt(),
              HasSubstr("chat.jsonl holds rows of JSON"));
  EXPECT_THAT(open_text(folder.write("one.json", "{\"a\": 1}"))->doubt(), HasSubstr("holds rows of JSON"));
  for (const std::string text : {"{ is a brace\n", "{\n\"a\": 1\n}\n", "[1]\n", "plain", "{"}) {
    EXPECT_EQ(open_text(folder.write("text", text))->doubt(), "") << text;
  }
}

}  // namespace
}  // namespace shoal::train
