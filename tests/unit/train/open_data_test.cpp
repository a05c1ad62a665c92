#include "train/open_data.h"

#include <gmock/gmock.h>

#include "message_of.h"
#include "temp_folder.h"
#include "unit/train/write_tokens.h"

namespace shoal::train {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::TempFolder;

const Vocabulary kBytes{"llama-tiny", 256, true};
const Vocabulary kWords{"gpt2", 50257, false};

std::unique_ptr<TokenSource> opened(const std::string& data, const Vocabulary& vocabulary) {
  return open_data(parse_data(data).at(0), vocabulary);
}

TEST(OpenData, OpensEachKind) {
  const TempFolder folder;
  EXPECT_EQ(opened("text:" + folder.write("a", "abc"), kBytes)->numel(), 3);
  EXPECT_EQ(opened("synthetic", kWords)->vocab(), 50257);
  EXPECT_EQ(opened("synthetic:tokens=50,surprise=0.5,seed=3", kBytes)->numel(), 50);
  testing::write_tokens(folder / "t.bin", 300, {1, 2, 299});
  EXPECT_EQ(opened("tokens:" + folder / "t.bin", kWords)->numel(), 3);
}

TEST(OpenData, TokensOfMuchFewerWordsThanTheModelHasAreDoubted) {
  const TempFolder folder;
  testing::write_tokens(folder / "few.bin", 300, {1, 2, 299});
  testing::write_tokens(folder / "own.bin", 50000, {1, 2, 299});
  EXPECT_EQ(doubt_about_tokens(*opened("tokens:" + folder / "few.bin", kWords), kWords),
            "tokens:" + folder / "few.bin" +
                " was made with a tokenizer of 300 tokens, and gpt2 has 50,257: check that it is the model's own");
  EXPECT_EQ(doubt_about_tokens(*opened("tokens:" + folder / "own.bin", kWords), kWords), "");
  EXPECT_EQ(doubt_about_tokens(*opened("synthetic", kWords), kWords), "");
  folder.write("raw.bin", std::string("\1\0", 2));
  folder.write("raw.bin.json", R"({"dtype": "uint16"})");
  EXPECT_EQ(doubt_about_tokens(*opened("tokens:" + folder / "raw.bin", kWords), kWords), "") << "it does not say";
}

TEST(OpenData, APointerOfGitLfsIsNeitherTextNorTokens) {
  const TempFolder folder;
  folder.write("texts/a.txt", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4096\n");
  for (const char* spec : {"text:", "tokens:"}) {
    EXPECT_THAT(message_of([&] { opened(spec + folder / "texts/a.txt", kBytes); }),
                HasSubstr("a.txt] is a pointer of Git LFS and not the file itself, which has 4 KiB."));
  }
  EXPECT_THAT(message_of([&] { opened("text:" + folder / "texts", kBytes); }), HasSubstr("a.txt] is a pointer"));
}

TEST(OpenData, TextInUtf16IsRefused) {
  const TempFolder folder;
  const std::string path = folder.write("a.txt", std::string("\xff\xfe\x61\0", 4));
  EXPECT_EQ(message_of([&] { opened("text:" + path, kBytes); }),
            "[data text:" + path + "] is in UTF-16. Save it as UTF-8.");
}

TEST(OpenData, APathAloneIsAnsweredWithTheTwoThatItMayBe) {
  const TempFolder folder;
  const std::string path = folder.write("book.txt", "abc");
  EXPECT_EQ(message_of([&] { opened(path, kBytes); }),
            "[data " + path + "] does not say what it holds. Write text:" + path + " or tokens:" + path + ".");
}

TEST(OpenData, TextNeedsAModelOverBytes) {
  const TempFolder folder;
  const std::string spec = "text:" + folder.write("a", "abc");
  EXPECT_THAT(message_of([&] { opened(spec, kWords); }), HasSubstr("gpt2 has 50257 tokens"));
}

TEST(OpenData, TokensBeyondTheVocabularyAreNamed) {
  const TempFolder folder;
  folder.write("raw.bin", std::string("\1\0\2\0\0\1", 6));
  folder.write("raw.bin.json", R"({"dtype": "uint16", "vocab": 256})");
  const auto source = opened("tokens:" + folder / "raw.bin", kBytes);
  EXPECT_THAT(message_of([&] { check_tokens(*source, kBytes); }), HasSubstr("token 256 at position 2 is beyond"));
  EXPECT_EQ(message_of([&] { check_tokens(*source, kWords); }), "");
  for (const int readers : {1, 2, 3, 4, 5}) {
    int found = 0;
    for (int index = 0; index < readers; ++index) {
      if (!message_of([&] { check_tokens(*source, kBytes, {index, readers}); }).empty()) ++found;
    }
    EXPECT_EQ(found, 1) << "every token is looked at by one of " << readers;
  }
  folder.write("raw.bin.json", R"({"dtype": "uint16", "vocab": 257})");
  EXPECT_THAT(message_of([&] { opened("tokens:" + folder / "raw.bin", kBytes); }), HasSubstr("vocabulary of 257"));
  EXPECT_EQ(opened("tokens:" + folder / "raw.bin", kWords)->numel(), 3);
}

TEST(OpenData, SaysWhatIsWrongWithTheWord) {
  const auto message = [](const std::string& spec) { return message_of([&] { opened(spec, kBytes); }); };
  EXPECT_THAT(message("book.txt"), HasSubstr("none of text:PATH"));
  EXPECT_THAT(message("text:"), HasSubstr("no path"));
  EXPECT_THAT(message("tokens"), HasSubstr("no path"));
  EXPECT_THAT(message("synthetic:token=5"), HasSubstr("Did you mean tokens?"));
  EXPECT_THAT(message("synthetic:tokens=0"), HasSubstr("not a whole number"));
  EXPECT_THAT(message("synthetic:tokens=many"), HasSubstr("not a number"));
  EXPECT_THAT(message("synthetic:surprise=2"), HasSubstr("not in (0, 1]"));
  EXPECT_THAT(message("synthetic:surprise"), HasSubstr("not a number"));
}

}  // namespace
}  // namespace shoal::train
