#include "train/chat_file.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <thread>

#include "message_of.h"
#include "temp_folder.h"

namespace shoal::train {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TempFolder;

// In place of Python: a script that writes its words into the file behind -o, after a while, and counts its calls.
class ChatFile : public ::testing::Test {
 protected:
  ChatFile() {
    folder_.write("model/tokenizer.json", "{}");
    folder_.write("a.jsonl", "{}\n");
    folder_.write("tokenizer.sh", "echo call >> '" + folder_ / "calls" +
                                      "'; sleep 0.2; echo \"$@\" > \"$4.part\"; mv \"$4.part\" \"$4\"");
    place_ = {.program = {"/bin/sh", folder_ / "tokenizer.sh"},
              .model_folder = folder_ / "model",
              .run_folder = folder_ / "run"};
  }
  DataSpec spec(const std::string& kind = "chat") const {
    const std::string file = folder_ / "a.jsonl";
    return {kind + ":" + file, kind, file};
  }
  size_t calls() const {
    if (!fs::exists(folder_ / "calls")) return 0;
    const std::string text = folder_.read("calls");
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }

  TempFolder folder_;
  TokenizerPlace place_;
};

TEST_F(ChatFile, IsMadeOnceByWhoeverComesFirst) {
  std::vector<std::string> paths(4);
  std::vector<std::thread> threads;
  for (std::string& path : paths) threads.emplace_back([&] { path = token_file_of(spec(), place_); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& path : paths) EXPECT_EQ(path, paths[0]);
  EXPECT_EQ(calls(), 1u);
  EXPECT_EQ(fs::path(paths[0]).parent_path(), folder_ / "run/tokens");
  const std::string words = folder_.read(fs::relative(paths[0], folder_.path()).string());
  EXPECT_THAT(words, HasSubstr("--tokenizer " + folder_ / "model" + " -o " + paths[0] + " --layout chat -- "));
}

TEST_F(ChatFile, AnotherFileTokenizerTemplateOrKindIsMadeAnew) {
  std::vector<std::string> paths = {token_file_of(spec(), place_)};
  paths.push_back(token_file_of(spec("prompts"), place_));
  folder_.write("a.jsonl", "{}\n{}\n");
  paths.push_back(token_file_of(spec(), place_));
  folder_.write("model/chat_template.jinja", "x");
  paths.push_back(token_file_of(spec(), place_));
  folder_.write("model/tokenizer.json", "{ }");
  paths.push_back(token_file_of(spec(), place_));
  std::sort(paths.begin(), paths.end());
  EXPECT_EQ(std::unique(paths.begin(), paths.end()), paths.end());
  EXPECT_EQ(calls(), 5u);
  place_.run_folder = "";
  EXPECT_EQ(fs::path(token_file_of(spec(), place_)).parent_path(), folder_ / ".shoal");
}

TEST_F(ChatFile, TemplatesOfAFolderOfTheirOwnCountByNameAndText) {
  std::vector<std::string> paths = {token_file_of(spec(), place_)};
  folder_.write("model/additional_chat_templates/tool_use.jinja", "x");
  paths.push_back(token_file_of(spec(), place_));
  EXPECT_EQ(token_file_of(spec(), place_), paths[1]);
  folder_.write("model/additional_chat_templates/tool_use.jinja", "y");
  paths.push_back(token_file_of(spec(), place_));
  folder_.write("model/additional_chat_templates/default.jinja", "y");
  paths.push_back(token_file_of(spec(), place_));
  fs::remove(folder_ / "model/additional_chat_templates/tool_use.jinja");
  paths.push_back(token_file_of(spec(), place_));
  std::sort(paths.begin(), paths.end());
  EXPECT_EQ(std::unique(paths.begin(), paths.end()), paths.end());
  EXPECT_EQ(calls(), 5u);
  folder_.write("model/additional_chat_templates/README.md", "No template.");
  token_file_of(spec(), place_);
  EXPECT_EQ(calls(), 5u);
}

TEST_F(ChatFile, WhatIsMissingIsSaid) {
  place_.model_folder = "";
  EXPECT_THAT(message_of([&] { token_file_of(spec(), place_); }), HasSubstr("a built-in model has none"));
  place_.model_folder = folder_ / "none";
  EXPECT_THAT(message_of([&] { token_file_of(spec(), place_); }), HasSubstr("none has no tokenizer.json"));
  place_.model_folder = folder_ / "model";
  EXPECT_THAT(message_of([&] {
                token_file_of({"chat:x", "chat", "x"}, place_);
              }),
              HasSubstr("[data chat:x] is not a file"));
  folder_.write("empty.jsonl", "");
  EXPECT_THAT(message_of([&] {
                token_file_of({"chat:e", "chat", folder_ / "empty.jsonl"}, place_);
              }),
              HasSubstr("is empty"));
  folder_.write("tokenizer.sh", "exit 2");
  EXPECT_THAT(message_of([&] { token_file_of(spec(), place_); }),
              HasSubstr("was not made into tokens. What was printed"));
  place_.program = {"/no/such/python", "x"};
  EXPECT_THAT(message_of([&] { token_file_of(spec(), place_); }), HasSubstr("/no/such/python cannot be started"));
}

}  // namespace
}  // namespace shoal::train
