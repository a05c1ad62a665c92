// `shoal tokenize` with a small tokenizer, down to the bytes of docs/formats/tokens.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "process/command.h"
#include "train/token_file.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using testing::Command;
using ::testing::HasSubstr;
using testing::Result;

// Words at spaces: a 0, b 1, unknown 2, end of text 3.
constexpr const char* kTokenizer = R"({
  "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
  "added_tokens": [{"id": 3, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": true}],
  "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
  "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "?": 2}, "unk_token": "?"}
})";

class Tokenize : public ::testing::Test {
 protected:
  Tokenize() : folder_(fs::temp_directory_path() / ("shoal_tokenize_" + std::to_string(getpid()))) {
    fs::create_directories(folder_ / "texts/deeper");
    write("tokenizer.json", kTokenizer);
  }
  ~Tokenize() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }
  Result tokenize(std::vector<std::string> words, const std::map<std::string, std::string>& env = {}) const {
    words.insert(words.begin(), {SHOAL_BINARY, "tokenize"});
    return Command(words, {.env = env, .folder = folder_.string()}).wait();
  }
  std::vector<int64_t> tokens_of(const std::string& name) const {
    const auto file = train::open_token_file((folder_ / name).string());
    std::vector<int64_t> tokens(static_cast<size_t>(file->numel()));
    file->read(0, file->numel(), tokens.data());
    EXPECT_EQ(file->vocab(), 4);
    return tokens;
  }

  fs::path folder_;
};

TEST_F(Tokenize, WritesTheTokensOfEveryFileInOrder) {
  write("texts/2.txt", "\xef\xbb\xbf\x62 b\n");  // as Windows writes it
  write("texts/10.txt", "a unknown a");
  write("texts/deeper/1.txt", "b");
  write("texts/.hidden", "a a a a");
  write("texts/empty", "");
  const Result result =
      tokenize({"--tokenizer", "tokenizer.json", "texts", "texts/2.txt", "-o", "out.bin", "--eos", "<end>"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "out.bin: 12 tokens of 2 bytes, vocabulary 4, from 4 files of 0.0 MB\n");
  EXPECT_EQ(tokens_of("out.bin"), (std::vector<int64_t>{0, 2, 0, 3, 1, 1, 3, 1, 3, 1, 1, 3}));
  // Header and tokens, to whole words; an end for each of 4 documents, and what is said of them all.
  EXPECT_EQ(fs::file_size(folder_ / "out.bin"), 32u + 2 * 12 + 4 * 8 + 24);
  const auto file = train::open_token_file((folder_ / "out.bin").string());
  EXPECT_EQ(file->documents(), 4);
  EXPECT_EQ(file->document_begin(1), 4);
  EXPECT_FALSE(file->has_mask());
  const Result one = tokenize({"--tokenizer", "tokenizer.json", "texts/2.txt", "-o", "one.bin"});
  ASSERT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(fs::file_size(folder_ / "one.bin"), 32u + 2 * 2) << "one document, as files were before";
}

TEST_F(Tokenize, EachRowOfALinesFileIsADocument) {
  write("texts/rows.jsonl",
        "\xef\xbb\xbf{\"text\": \"a b\", \"id\": 1}\r\n\n{\"id\": 2, \"text\": \"b\\nb\"}\n{\"text\": \"\"}");
  write("texts/z.txt", "{ a }");
  const Result result = tokenize({"--tokenizer", "tokenizer.json", "texts", "-o", "out.bin", "--eos", "<end>"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "out.bin: 11 tokens of 2 bytes, vocabulary 4, from 4 documents in 2 files of 0.0 MB\n");
  EXPECT_EQ(tokens_of("out.bin"), (std::vector<int64_t>{0, 1, 3, 1, 1, 3, 3, 2, 0, 2, 3}));

  write("rows.ndjson", "{\"body\": \"a\"}\n{\"body\": \"b\"}\n");
  const Result other = tokenize({"--tokenizer", "tokenizer.json", "rows.ndjson", "--field", "body", "-o", "out.bin"});
  ASSERT_EQ(other.exit_code, 0) << other.err;
  EXPECT_EQ(tokens_of("out.bin"), (std::vector<int64_t>{0, 1}));
  EXPECT_THAT(other.err, HasSubstr("--eos names the token"));
}

TEST_F(Tokenize, RowsAreKnownByAnyCaseOfTheNameAndRefusedUnderAnother) {
  write("rows.JSONL", "{\"text\": \"a b\"}\n");
  const Result result = tokenize({"--tokenizer", "tokenizer.json", "rows.JSONL", "-o", "out.bin"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(tokens_of("out.bin"), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(train::open_token_file((folder_ / "out.bin").string())->documents(), 1) << "--pack needs its end";
  for (const char* rows : {"{\"text\": \"a\"}", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n"}) {
    write("d.json", rows);
    const Result refused = tokenize({"--tokenizer", "tokenizer.json", "d.json", "-o", "refused.bin"});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err, HasSubstr("[tokenize d.json] holds rows of JSON"));
    EXPECT_THAT(refused.err, HasSubstr("Name it .jsonl."));
    EXPECT_FALSE(fs::exists(folder_ / "refused.bin"));
  }
  write("d.json", "{\n  \"text\": \"a\"\n}\n");  // one document, of several lines
  EXPECT_EQ(tokenize({"--tokenizer", "tokenizer.json", "d.json", "-o", "out.bin"}).exit_code, 0);
}

// Documents are encoded many at a time, and long ones alone: neither their order nor their ends change.
TEST_F(Tokenize, ManyAndLongRowsKeepTheirOrder) {
  std::string rows;
  std::vector<int64_t> expected;
  for (int row = 0; row < 3000; ++row) {
    const size_t words = row == 1500 ? 600'000 : static_cast<size_t>(row % 3);
    std::string text;
    for (size_t word = 0; word < words; ++word) text += row % 2 == 0 ? "a " : "b ";
    rows += "{\"text\": \"" + text + "\"}\n";
    expected.insert(expected.end(), words, row % 2);
    expected.push_back(3);
  }
  write("rows.jsonl", rows);
  const Result result = tokenize({"--tokenizer", "tokenizer.json", "rows.jsonl", "-o", "out.bin", "--eos", "<end>"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(tokens_of("out.bin") == expected);
}

TEST_F(Tokenize, EachRowOfAParquetFileIsADocument) {
  const char* named = std::getenv("SHOAL_PYTHON");  // as the command finds it
  const std::string interpreter = named != nullptr ? named : SHOAL_BUILD_PYTHON;
  const auto python = [&](const std::string& program) {
    return Command({interpreter, "-c", program}, {.folder = folder_.string()}).wait().exit_code;
  };
  write("other.parquet", "PAR1 and no more");
  if (python("import pyarrow") != 0) {
    const Result without = tokenize({"--tokenizer", "tokenizer.json", "other.parquet", "-o", "out.bin"});
    EXPECT_EQ(without.exit_code, 2);
    EXPECT_THAT(without.err, HasSubstr("[tokenize other.parquet] reading it takes the package pyarrow."));
    GTEST_SKIP() << "rows themselves: this Python has no pyarrow";
  }
  ASSERT_EQ(
      python("import pyarrow, pyarrow.parquet as p\n"
             "p.write_table(pyarrow.table({'id': range(700), 'body': ['a b' if i % 2 else 'b' for i in range(700)]}), "
             "'rows.parquet')\n"
             "p.write_table(pyarrow.table({'text': ['a', None]}), 'null.parquet')"),
      0);
  const std::vector<std::string> words = {"--tokenizer", "tokenizer.json", "-o", "out.bin", "--eos", "<end>"};
  const auto of = [&](std::vector<std::string> more) {
    more.insert(more.end(), words.begin(), words.end());
    return tokenize(more);
  };
  const Result result = of({"rows.parquet", "--field", "body"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("from 700 documents in 1 file"));
  std::vector<int64_t> expected;
  for (int row = 0; row < 700; ++row) {
    if (row % 2 == 1) expected.push_back(0);
    expected.insert(expected.end(), {1, 3});
  }
  EXPECT_TRUE(tokens_of("out.bin") == expected);
  EXPECT_THAT(of({"rows.parquet"}).err, HasSubstr("has no field 'text'. Its fields: id, body."));
  EXPECT_THAT(of({"null.parquet"}).err,
              HasSubstr("[tokenize null.parquet, row 2] the field 'text' is null and no text."));
  EXPECT_THAT(of({"other.parquet"}).err, HasSubstr("is no Parquet file that can be read"));
}

TEST_F(Tokenize, CompressedLinesAreReadAndDamageIsSaid) {
  write("rows.jsonl", "{\"text\": \"a b a\"}\n");
  ASSERT_EQ(Command({"gzip", "rows.jsonl"}, {.folder = folder_.string()}).wait().exit_code, 0);
  const Result result = tokenize({"--tokenizer", "tokenizer.json", "rows.jsonl.gz", "-o", "out.bin"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(tokens_of("out.bin"), (std::vector<int64_t>{0, 1, 0}));
  fs::resize_file(folder_ / "rows.jsonl.gz", fs::file_size(folder_ / "rows.jsonl.gz") - 6);
  const Result cut = tokenize({"--tokenizer", "tokenizer.json", "rows.jsonl.gz", "-o", "cut.bin"});
  EXPECT_EQ(cut.exit_code, 2);
  EXPECT_THAT(cut.err, HasSubstr("damaged or cut off"));
  EXPECT_FALSE(fs::exists(folder_ / "cut.bin"));
}

TEST_F(Tokenize, MistakesAreNamedAndLeaveNoFile) {
  write("good.txt", "a");
  std::ofstream(folder_ / "latin.txt") << "a \xe9 b";
  const auto expect = [&](const std::vector<std::string>& words, int code, const std::string& message) {
    const Result result = tokenize(words);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(message));
    for (const auto& entry : fs::directory_iterator(folder_)) {
      EXPECT_EQ(entry.path().filename().string().find("out.bin"), std::string::npos) << entry.path();
    }
  };
  expect({"nope"}, 2, "--tokenizer is required");
  expect({"--tokenizer", "none.json", "good.txt", "-o", "out.bin"}, 2, "[--tokenizer none.json] is not a file.");
  expect({"--tokenizer", "good.txt", "good.txt", "-o", "out.bin"}, 2, "[--tokenizer good.txt] is not a tokenizer.json");
  expect({"--tokenizer", "tokenizer.json", "good.txt", "-o", "out.bin", "--field", "body"}, 2,
         "[--field body] is for files of rows, .jsonl or .parquet, and there is none.");
  expect({"--tokenizer", "tokenizer.json", "good.txt", "-o", "out.bin", "--eos", "<stop>"}, 2,
         "[--eos <stop>] is not a token of this tokenizer.");
  expect({"--tokenizer", "tokenizer.json", "none.txt", "-o", "out.bin"}, 2, "[tokenize none.txt] does not exist.");
  expect({"--tokenizer", "tokenizer.json", "good.txt", "latin.txt", "-o", "out.bin"}, 2,
         "[tokenize latin.txt] byte 2 is not UTF-8.");
  expect({"--tokenizer", "tokenizer.json", "texts/deeper", "-o", "out.bin"}, 2, "there is no text");
  expect({"--tokenizer", "tokenizer.json", "good.txt", "-o", "texts"}, 1,
         "[tokenize texts] cannot be written: Is a directory. Give another -o.");
  const auto expect_of_rows = [&](const std::string& rows, const std::string& message) {
    write("rows.jsonl", rows);
    expect({"--tokenizer", "tokenizer.json", "rows.jsonl", "-o", "out.bin"}, 2,
           "[tokenize rows.jsonl, line " + message);
  };
  expect_of_rows("{\"text\": \"a\"}\na b\n", "2] is not JSON");
  expect_of_rows("{\"text\": \"a\"}\n\n[1]\n", "3] is no object with fields.");
  expect_of_rows("{\"body\": \"a\", \"id\": 7}\n", "1] has no field 'text'. Its fields: body, id. Name the one");
  expect_of_rows("{\"text\": null}\n", "1] the field 'text' is null and no text.");
  expect_of_rows("{\"text\": 3}\n", "1] the field 'text' is int and no text.");
  expect_of_rows("{\"text\": \"\\ud800\"}\n", "1] the field 'text' holds half of a surrogate pair");
  expect_of_rows("{\"text\": \"a \xe9\"}\n", "1] byte 12 of it is not UTF-8.");
  write("chat.jsonl", "{\"messages\": []}\n");
  expect({"--tokenizer", "tokenizer.json", "chat.jsonl", "-o", "out.bin"}, 2,
         "[--tokenizer tokenizer.json] has no chat template");
  expect({"--tokenizer", "tokenizer.json", "chat.jsonl", "--layout", "text", "-o", "out.bin"}, 2,
         "[tokenize chat.jsonl, line 1] has no field 'text'. Its fields: messages.");
  write("blank.jsonl", "\n \n");
  expect({"--tokenizer", "tokenizer.json", "blank.jsonl", "-o", "out.bin"}, 1,
         "[tokenize] the tokenizer gave no token");
  write("pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4096\n");
  expect({"--tokenizer", "pointer", "good.txt", "-o", "out.bin"}, 2, "[--tokenizer pointer] is a pointer of Git LFS");
  expect({"--tokenizer", "tokenizer.json", "pointer", "-o", "out.bin"}, 2,
         "[tokenize pointer] is a pointer of Git LFS");
}

TEST_F(Tokenize, APythonThatIsNotThereIsAnError) {
  write("good.txt", "a");
  const Result result =
      tokenize({"--tokenizer", "tokenizer.json", "good.txt", "-o", "out.bin"}, {{"SHOAL_PYTHON", "/no/such/python"}});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("[tokenize] /no/such/python cannot be started"));
}

}  // namespace
}  // namespace shoal
