// What a user can get wrong is said before training starts, with the exit code of wrong usage; what goes wrong later
// ends as the flags say.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "process/train_run.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using Words = std::vector<std::string>;

// One rank, and two that are started here: the message comes once, before any rank runs.
void expect_refused(const RunFolder& folder, const Words& words, const std::string& message) {
  for (const char* ranks : {"1", "2"}) {
    Words all = {SHOAL_BINARY, "train", "--steps", "2", "--threads", "1", "--ranks", ranks};
    all.insert(all.end(), words.begin(), words.end());
    const Result result = Command(all).wait();
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_THAT(result.err, Not(HasSubstr("[rank"))) << result.err;
  }
}

TEST(TrainMistakes, AreSaidBeforeTrainingStarts) {
  const RunFolder folder;
  const std::string llama = folder / "llama";
  folder.write("words/config.json", RunFolder::llama_config(1000));
  std::filesystem::create_directories(folder / "empty");
  const std::string text = "text:" + folder.write("text", std::string(1000, 'a'));
  const auto with = [&](const std::string& model, const std::string& data, const Words& more = {}) {
    Words words = {"--model", model, "--data", data};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  expect_refused(folder, with(llama, "text:" + folder / "empty"), "holds no file");
  expect_refused(folder, with(llama, text, {"--sequence", "60", "--set", "train_batch_size=64"}),
                 "fewer than one global batch of 64");
  expect_refused(folder, with(folder / "words", text), "has 1000 tokens");
  expect_refused(folder, with(llama, text, {"--sequence", "65"}), "[--sequence] 65 tokens are more than");
  expect_refused(folder, with(llama, text, {"--set", "zero_optimization.stage=4"}), "stage");
  expect_refused(folder, with("lama-tiny", text), "Did you mean llama-tiny?");
  expect_refused(folder, with(llama, text, {"--sequence", "16", "--resume", folder / "empty"}), "[--resume]");
  const auto lora = [&](const std::string& spec) { return with(llama, text, {"--sequence", "16", "--lora", spec}); };
  expect_refused(folder, lora("r=0,alpha=8"), "[--lora] r=0 is no rank of an adapter");
  expect_refused(folder, lora(""), "--lora: is empty. Give r and alpha");
  expect_refused(folder, lora("r=8"), "[--lora] has no alpha");
  expect_refused(folder, lora("r=8,alpha=8,targets=q_prj"),
                 "has no matrix q_prj that can have adapters. Did you mean q_proj?");
  folder.write("old/metrics.jsonl", "");
  expect_refused(folder, with(llama, text, {"--sequence", "16", "--out", folder / "old"}), "--resume auto");
  std::string tokens(4000, '\0');
  tokens[5] = 1;  // token 2 is 256
  folder.write("raw.bin", tokens);
  folder.write("raw.bin.json", R"({"dtype": "uint16", "vocab": 256})");
  const Words raw = with(llama, "tokens:" + folder / "raw.bin", {"--sequence", "16"});
  expect_refused(folder, raw, "token 256 at position 2");
  // Under another launcher the ranks share the look, and all say what one of them found.
  Words launched = {SHOAL_BINARY, "launch", "-n", "2", "--", SHOAL_BINARY, "train", "--steps", "2", "--threads", "1"};
  launched.insert(launched.end(), raw.begin(), raw.end());
  const Result result = Command(launched).wait();
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("raw.bin] rank 0: token 256 at position 2"));
  expect_refused(folder, with(llama, text, {"--sequence", "16", "--seed", "-1"}), "--seed: Value -1 not in range");
}

// The word of users for a device of torch.
TEST(TrainMistakes, AGpuIsCuda) {
  const RunFolder folder;
  const Result typo = train(folder, "llama", "run", {"--steps", "1", "--device", "kuda"});
  EXPECT_EQ(typo.exit_code, 2);
  EXPECT_THAT(typo.err, HasSubstr("[--device] kuda is not a device. Did you mean cuda?"));
  const Result result = Command(train_words(folder, "llama", "run", {"--steps", "1", "--device", "gpu"}),
                                {.env = {{"CUDA_VISIBLE_DEVICES", ""}}})
                            .wait();
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("[device cuda] there is no GPU to use"));
}

TEST(TrainMistakes, AFolderWithTheNameOfABuiltInModelIsTakenAndSaid) {
  const RunFolder folder;
  Words words = train_words(folder, "", "run", {"--steps", "1"});
  words.at(3) = "gpt2";
  const Result result = Command(words, {.folder = folder.path()}).wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("gpt2 is a folder here and a built-in name: the folder is taken. The built-in "
                                    "model is builtin:gpt2\n"));
  EXPECT_THAT(result.out, HasSubstr("weights    made with seed 1: gpt2/config.json comes without any\n"));
}

// A rate that throws the weights away in the first step.
TEST(TrainMistakes, ARunOfNothingButNanEndsAndFails) {
  const RunFolder folder;
  const auto wild = [&](const std::string& out, const Words& more) {
    Words words = train_words(folder, "llama", out, {"--ranks", "2", "--save-every", "1", "--keep-last", "2"});
    std::replace(words.begin(), words.end(), std::string("0.01"), std::string("1e30"));
    return Command(words + more).wait();
  };
  const Result result = wild("run", {"--steps", "100", "--max-nonfinite", "5"});
  EXPECT_EQ(result.exit_code, 1) << result.out;
  EXPECT_THAT(result.err, HasSubstr("steps 2 to 6 are not finite: the loss of step 2 was "));
  EXPECT_THAT(result.err, HasSubstr("a gradient of unit "));
  EXPECT_EQ(column(folder.read("run/metrics.jsonl"), "step").size(), 6u);
  EXPECT_THAT(result.out, HasSubstr("step 5 is not saved: its loss is not finite"));
  EXPECT_TRUE(std::filesystem::exists(folder / "run/checkpoints/step-00000001"));
  const Result few = wild("few", {"--steps", "3"});
  EXPECT_EQ(few.exit_code, 1) << "too few for 20 in a row, and nothing was learned";
}

// A fixed loss scale under which every gradient overflows: the losses are finite, and nothing is learned.
TEST(TrainMistakes, ARunThatOnlySkipsFails) {
  const RunFolder folder;
  const auto skipping = [&](const std::string& out, const Words& more) {
    return train(folder, "llama", out,
                 Words{"--set", "fp16.enabled=true", "--set", "fp16.loss_scale=1e9", "--save-every", "1"} + more);
  };
  const Result few = skipping("few", {"--steps", "3"});
  EXPECT_EQ(few.exit_code, 1) << few.out;
  EXPECT_THAT(few.err, HasSubstr("steps 1 to 3 are not finite: the loss of step 1 was 5."));
  EXPECT_THAT(few.out, HasSubstr("step 3 is not saved: no step was taken"));
  const Result many = skipping("many", {"--steps", "100", "--set", "shoal.max_nonfinite=7"});
  EXPECT_EQ(many.exit_code, 1) << many.out;
  EXPECT_THAT(many.err, HasSubstr("steps 1 to 7 are not finite"));
  EXPECT_THAT(many.err, HasSubstr("So many in a row end a run (--max-nonfinite 7)"));
}

// Nobody writes to them: a read would wait without end.
TEST(TrainMistakes, FilesThatAreNoFilesAreRefused) {
  const RunFolder folder;
  const std::string llama = folder / "llama", fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::string raw = folder.write("raw.bin", std::string(4000, '\0'));
  ASSERT_EQ(::mkfifo((raw + ".json").c_str(), 0600), 0);
  std::filesystem::create_directories(folder / "model");
  ASSERT_EQ(::mkfifo((folder / "model/config.json").c_str(), 0600), 0);
  const Words synthetic = {"--model", llama, "--data", "synthetic", "--sequence", "16"};
  Words config = synthetic;
  config.insert(config.end(), {"--config", fifo});
  expect_refused(folder, config, "[config " + fifo + "] the file cannot be read: it is a FIFO.");
  expect_refused(folder, {"--model", llama, "--data", "tokens:" + fifo}, "is a FIFO, not a regular file");
  expect_refused(folder, {"--model", llama, "--data", "tokens:" + raw}, "raw.bin.json] the file cannot be read");
  expect_refused(folder, {"--model", folder / "model", "--data", "synthetic"}, "is a FIFO, not a regular file");
}

TEST(TrainMistakes, ASecondRunInOneFolderIsToldWhoHasIt) {
  const RunFolder folder;
  Command first(train_words(folder, "llama", "one", {"--steps", "1000000"}));
  ASSERT_TRUE(first.wait_for_output("step 1/")) << first.err();
  const Words more = {"--steps", "2", "--resume", "auto"};
  const Result second = train(folder, "llama", "one", more);
  EXPECT_EQ(second.exit_code, 2) << second.out;
  EXPECT_THAT(second.err, HasSubstr("is in use by another run, process " + std::to_string(first.pid()) + " on "));
  first.kill(SIGKILL);  // a dead run's lock does not count
  first.wait();
  EXPECT_EQ(train(folder, "llama", "one", more).exit_code, 0);
}

TEST(TrainMistakes, AnotherNumberOfRanksThanTheLaunchersIsRefused) {
  const RunFolder folder;
  const Result result = Command({SHOAL_BINARY, "launch", "-n", "2", "--", SHOAL_BINARY, "train", "--model",
                                 folder / "llama", "--data", "synthetic", "--steps", "1", "--ranks", "3"})
                            .wait();
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("contradicts the launcher"));
}

// A file where the folder of checkpoints should be: no save can succeed.
TEST(TrainMistakes, ASaveThatFailsEndsTheRunOrNotAsAsked) {
  const RunFolder folder;
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be shown a folder that looks writable and is not";
  for (const char* choice : {"stop", "continue"}) {
    const std::string out = choice;
    // A folder that looks writable to root and lets nobody make anything in it.
    std::filesystem::create_directories(folder / out);
    std::filesystem::create_directory_symlink("/proc", folder / (out + "/checkpoints"));
    const Result result =
        Command(train_words(folder, "llama", out,
                            {"--ranks", "2", "--steps", "4", "--save-every", "2", "--on-save-error", choice}))
            .wait();
    EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
    EXPECT_THAT(result.out + result.err, HasSubstr("checkpoints"));
    EXPECT_EQ(column(folder.read(out + "/metrics.jsonl"), "step").size(), out == "stop" ? 2u : 4u);
  }
}

}  // namespace
}  // namespace shoal::testing
