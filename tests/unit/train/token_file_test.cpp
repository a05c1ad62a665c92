#include "train/token_file.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "message_of.h"
#include "temp_folder.h"
#include "unit/train/write_tokens.h"

namespace shoal::train {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::TempFolder;
using testing::write_tokens;

std::vector<int64_t> read_all(const TokenSource& source) {
  std::vector<int64_t> tokens(static_cast<size_t>(source.numel()));
  source.read(0, source.numel(), tokens.data());
  return tokens;
}

TEST(TokenFile, ReadsWhatWasWritten) {
  const TempFolder folder;
  for (const int64_t vocab : {int64_t{1}, int64_t{65536}, int64_t{65537}, int64_t{1} << 32}) {
    const std::vector<int64_t> tokens = {0, vocab - 1, vocab / 2, vocab / 3, 0};
    write_tokens(folder / "t.bin", static_cast<uint64_t>(vocab), tokens);
    const auto source = open_token_file(folder / "t.bin");
    EXPECT_EQ(source->vocab(), vocab);
    EXPECT_FALSE(source->is_checked());
    EXPECT_EQ(read_all(*source), tokens);
    std::vector<int64_t> part(2);
    source->read(1, 2, part.data());
    EXPECT_EQ(part, (std::vector<int64_t>{tokens[1], tokens[2]}));
  }
}

TEST(TokenFile, MayBeEmpty) {
  const TempFolder folder;
  write_tokens(folder / "t.bin", 10, {});
  EXPECT_EQ(open_token_file(folder / "t.bin")->numel(), 0);
}

TEST(TokenFile, ReadsTheBytesThatTheFormatSays) {
  const TempFolder folder;
  folder.write("t.bin", std::string("SHOALTOK"
                                    "\1\0\0\0"
                                    "\2\0\0\0"
                                    "\x2c\1\0\0\0\0\0\0"
                                    "\2\0\0\0\0\0\0\0"
                                    "\1\0\2\1",
                                    36));
  const auto source = open_token_file(folder / "t.bin");
  EXPECT_EQ(source->vocab(), 300);
  EXPECT_EQ(read_all(*source), (std::vector<int64_t>{1, 258}));
}

TEST(TokenFile, AHeaderThatDoesNotFitIsAnError) {
  const TempFolder folder;
  write_tokens(folder / "t.bin", 300, {1, 2, 3});
  const std::string good = folder.read("t.bin");
  const auto message_with = [&](size_t at, char value) {
    std::string bad = good;
    bad[at] = value;
    folder.write("bad.bin", bad);
    return message_of([&] { open_token_file(folder / "bad.bin"); });
  };
  EXPECT_THAT(message_with(8, 9), HasSubstr("version 9"));
  EXPECT_THAT(message_with(12, 3), HasSubstr("3 bytes a token"));
  EXPECT_THAT(message_with(12, 4), HasSubstr("truncated or damaged"));
  EXPECT_THAT(message_with(24, 4), HasSubstr("truncated or damaged"));
  EXPECT_THAT(message_with(23, 1), HasSubstr("a vocabulary of"));
  EXPECT_THAT(message_with(0, 'X'), HasSubstr("has no header"));
  for (const std::string& bytes : {good.substr(0, good.size() - 1), good.substr(0, good.size() - 2), good + "xx"}) {
    folder.write("bad.bin", bytes);
    EXPECT_THAT(message_of([&] { open_token_file(folder / "bad.bin"); }), HasSubstr("truncated or damaged"));
  }
}

// 10 tokens, documents of 3, 0 and 7, of which tokens 1, 2, 8 and 9 are learned.
std::string with_documents() {
  const auto word = [](char low) { return std::string(1, low) + std::string(7, 0); };
  std::string bytes = std::string("SHOALTOK\2\0\0\0\2\0\0\0", 16) + word(100) + word(10);
  for (char token = 0; token < 10; ++token) bytes += std::string(1, token) + std::string(1, 0);
  bytes += std::string(4, 0);                  // to whole words
  bytes += "\x06\x03" + std::string(6, 0);     // the mask
  bytes += word(3) + word(3) + word(10);       // ends
  return bytes + word(3) + word(4) + word(1);  // documents, learned, masked
}

TEST(TokenFile, ReadsDocumentsAndTheMask) {
  const TempFolder folder;
  folder.write("t.bin", with_documents());
  const auto source = open_token_file(folder / "t.bin");
  EXPECT_EQ(read_all(*source), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(source->documents(), 3);
  for (const auto& [document, begin] : {std::pair(0, 0), std::pair(1, 3), std::pair(2, 3), std::pair(3, 10)}) {
    EXPECT_EQ(source->document_begin(document), begin) << document;
  }
  EXPECT_TRUE(source->has_mask());
  const std::vector<uint8_t> mask = {0, 1, 1, 0, 0, 0, 0, 0, 1, 1};
  for (int64_t begin = 0; begin <= 10; ++begin) {
    for (int64_t numel = 0; begin + numel <= 10; ++numel) {
      std::vector<uint8_t> learned(static_cast<size_t>(numel));
      source->read_learned(begin, numel, learned.data());
      EXPECT_EQ(learned, std::vector<uint8_t>(mask.begin() + begin, mask.begin() + begin + numel));
      EXPECT_EQ(source->count_learned(begin, numel), std::count(learned.begin(), learned.end(), 1));
    }
  }
  EXPECT_TRUE(is_token_file(folder / "t.bin"));
  EXPECT_FALSE(is_token_file(folder / "none"));
  EXPECT_FALSE(is_token_file(folder.write("x", "SHOALTO")));
}

TEST(TokenFile, DamagedDocumentsAreAnError) {
  const TempFolder folder;
  const std::string good = with_documents();
  const auto message_with = [&](size_t at, char value) {
    std::string bad = good;
    bad[at] = value;
    folder.write("bad.bin", bad);
    return message_of([&] { open_token_file(folder / "bad.bin"); });
  };
  const size_t ends = 64, trailer = good.size() - 24;
  EXPECT_THAT(message_with(24, 11), HasSubstr("of 11 tokens: it is damaged"));
  EXPECT_THAT(message_with(31, 127), HasSubstr("truncated"));      // a count that is no number of tokens
  EXPECT_THAT(message_with(trailer, 4), HasSubstr("do not fit"));  // documents
  EXPECT_THAT(message_with(trailer + 7, 127), HasSubstr("do not fit"));
  EXPECT_THAT(message_with(trailer + 8, 11), HasSubstr("do not fit"));  // learned
  EXPECT_THAT(message_with(trailer + 16, 0), HasSubstr("do not fit"));  // masked
  EXPECT_THAT(message_with(trailer + 16, 2), HasSubstr("do not fit"));
  EXPECT_THAT(message_with(ends + 8, 2), HasSubstr("document 1 ends at token 2, after one that ends at 3"));
  EXPECT_THAT(message_with(ends + 16, 9), HasSubstr("document 2 ends at token 9"));
  for (size_t nbytes : {size_t{33}, size_t{56}, good.size() - 8, good.size() - 1}) {
    folder.write("bad.bin", good.substr(0, nbytes));
    EXPECT_THAT(message_of([&] { open_token_file(folder / "bad.bin"); }), HasSubstr("Write the file again")) << nbytes;
  }
}

TEST(TokenFile, RowsOfJsonAreToldFromTokens) {
  const TempFolder folder;
  const std::string path = folder.write("talk.jsonl", "{\"messages\": []}\n");
  EXPECT_THAT(message_of([&] { open_token_file(path); }), HasSubstr("looks like rows of JSON. Write chat:" + path));
}

TEST(TokenFile, WithoutAHeaderTheSidecarDecides) {
  const TempFolder folder;
  const std::string bytes("\1\0\2\1\0\0\5\0", 8);
  folder.write("raw.bin", bytes);
  const auto open = [&] { return open_token_file(folder / "raw.bin"); };
  EXPECT_THAT(message_of(open), HasSubstr("raw.bin.json"));
  folder.write("raw.bin.json", R"({"dtype": "uint16"})");
  EXPECT_EQ(read_all(*open()), (std::vector<int64_t>{1, 258, 0, 5}));
  EXPECT_EQ(open()->vocab(), 0) << "not said";
  folder.write("raw.bin.json", R"({"dtype": "uint32", "vocab": 9})");
  EXPECT_EQ(open()->numel(), 2);
  EXPECT_EQ(open()->vocab(), 9);
  for (const char* wrong : {"{}", R"({"dtype": "int8"})", R"({"dtype": 16})", R"([1])"}) {
    folder.write("raw.bin.json", wrong);
    EXPECT_THAT(message_of(open), HasSubstr("uint16")) << wrong;
  }
  folder.write("raw.bin.json", R"({"dtype": "uint16", "vocab": 0})");
  EXPECT_THAT(message_of(open), HasSubstr("vocab"));
  folder.write("raw.bin.json", R"({"dtype": "uint32"})");
  folder.write("raw.bin", bytes.substr(1));
  EXPECT_THAT(message_of(open), HasSubstr("no whole number of tokens"));
}

TEST(TokenFile, ASidecarThatContradictsTheHeaderIsAnError) {
  const TempFolder folder;
  write_tokens(folder / "t.bin", 300, {1, 2});
  folder.write("t.bin.json", R"({"dtype": "uint16", "vocab": 300})");
  EXPECT_EQ(open_token_file(folder / "t.bin")->numel(), 2);
  folder.write("t.bin.json", R"({"dtype": "uint32"})");
  EXPECT_THAT(message_of([&] { open_token_file(folder / "t.bin"); }), HasSubstr("contradicts"));
}

}  // namespace
}  // namespace shoal::train
