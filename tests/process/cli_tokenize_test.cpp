// `shoal tokenize` with a small tokenizer, down to the bytes of docs/formats/tokens.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_EQ(fs::file_size(folder_ / "out.bin"), 32u + 2 * 12);
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
  expect({"--tokenizer", "tokenizer.json", "good.txt", "-o", "out.bin", "--eos", "<stop>"}, 2,
         "[--eos <stop>] is not a token of this tokenizer.");
  expect({"--tokenizer", "tokenizer.json", "none.txt", "-o", "out.bin"}, 2, "[tokenize none.txt] does not exist.");
  expect({"--tokenizer", "tokenizer.json", "good.txt", "latin.txt", "-o", "out.bin"}, 2,
         "[tokenize latin.txt] byte 2 is not UTF-8.");
  expect({"--tokenizer", "tokenizer.json", "texts/deeper", "-o", "out.bin"}, 2, "there is no text");
  expect({"--tokenizer", "tokenizer.json", "good.txt", "-o", "texts"}, 1,
         "[tokenize texts] cannot be written: Is a directory. Give another -o.");
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
