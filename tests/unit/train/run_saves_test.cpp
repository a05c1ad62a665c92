// Of an engine, in `shoal train` on one rank; on several tests/process/train_saves_test.cpp.
#include "train/run_saves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "base/json.h"
#include "message_of.h"
#include "temp_folder.h"
#include "train/prepare.h"
#include "train/trainer.h"

namespace shoal::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TempFolder;

TrainOptions saving_run(const TempFolder& folder) {
  TrainOptions options;
  options.model = folder / "model";
  folder.write("model/config.json", R"({"model_type": "llama", "hidden_size": 16, "intermediate_size": 32,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5, "vocab_size": 256})");
  options.data = "synthetic:tokens=5000";
  options.steps = 4;
  options.threads = 1;
  options.log_every = 1;
  options.out = folder / "run";
  options.save_every = 1;
  return options;
}

// "save 3" for each event of a save.
std::vector<std::string> saves_in(const TempFolder& folder) {
  std::vector<std::string> found;
  std::stringstream lines(folder.read("run/events.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const json::Value event = json::parse(line, "event");
    const std::string& what = event.find("event")->as_text();
    if (what.starts_with("save")) found.push_back(what + " " + std::to_string(event.find("step")->as_integer()));
  }
  return found;
}

std::string printed_by_run(const TrainOptions& options, int code) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(train(options, prepare_run(options, 1)), code);
  return ::testing::internal::GetCapturedStdout();
}

TEST(RunSaves, EachIsCompleteAtTheEndAndToldOnce) {
  for (const bool waits : {false, true}) {
    const TempFolder folder;
    TrainOptions options = saving_run(folder);
    options.save_and_wait = waits;
    const std::string text = printed_by_run(options, 0);
    EXPECT_THAT(saves_in(folder), ElementsAre("save 1", "save 2", "save 3", "save 4"));
    for (const char* step : {"1", "2", "3", "4"}) {
      EXPECT_TRUE(std::filesystem::exists(folder / (std::string("run/checkpoints/step-0000000") + step)));
    }
    EXPECT_EQ(text.find("held it up for") == std::string::npos, waits) << text;
  }
}

// `latest` cannot be given its name: saves begin, write everything and fail.
TEST(RunSaves, AFailureBehindTrainingEndsTheRunOrIsToldAndTheNextIsTried) {
  for (const OnSaveError choice : {OnSaveError::stop, OnSaveError::go_on}) {
    const TempFolder folder;
    TrainOptions options = saving_run(folder);
    options.on_save_error = choice;
    const PreparedRun run = prepare_run(options, 1);
    std::filesystem::create_directories(folder / "run/checkpoints/latest/in_the_way");
    if (choice == OnSaveError::stop) {
      EXPECT_THAT(message_of([&] { train(options, run); }),
                  HasSubstr("[checkpoint save] step 1, behind training: rank 0: cannot rename to"));
      EXPECT_THAT(saves_in(folder), ElementsAre());
      continue;
    }
    EXPECT_EQ(train(options, run), 1) << "the last save failed";
    EXPECT_THAT(saves_in(folder), ElementsAre("save failed 1", "save failed 2", "save failed 3", "save failed 4"));
    EXPECT_THAT(folder.read("run/events.jsonl"), HasSubstr("behind training"));
  }
}

TEST(RunSaves, NoMemoryIsPlannedWhereNothingIsSavedBehindTraining) {
  const TempFolder folder;
  TrainOptions options = saving_run(folder);
  options.overrides = {"shoal.save_memory=1GiB"};
  EXPECT_EQ(prepare_run(options, 1).config.shoal.save_memory, int64_t{1} << 30);
  options.save_and_wait = true;
  EXPECT_EQ(prepare_run(options, 1).config.shoal.save_memory, 0);
  options.save_and_wait = false;
  options.save_every = 0;
  EXPECT_EQ(prepare_run(options, 1).config.shoal.save_memory, 0);
}

TEST(RunSaves, AFailureEndsTheRunOrIsToldAndTheNextIsTried) {
  for (const OnSaveError choice : {OnSaveError::stop, OnSaveError::go_on}) {
    const TempFolder folder;
    TrainOptions options = saving_run(folder);
    options.on_save_error = choice;
    const PreparedRun run = prepare_run(options, 1);
    // A file stands where the folder would be.
    std::filesystem::remove_all(folder / "run/checkpoints");
    folder.write("run/checkpoints", "");
    if (choice == OnSaveError::stop) {
      EXPECT_THAT(message_of([&] { train(options, run); }),
                  HasSubstr("[checkpoint save] rank 0: cannot make the folder"));
      EXPECT_THAT(saves_in(folder), ElementsAre());
      continue;
    }
    EXPECT_EQ(train(options, run), 1) << "the last save failed";
    EXPECT_THAT(saves_in(folder), ElementsAre("save failed 1", "save failed 2", "save failed 3", "save failed 4"));
  }
}

}  // namespace
}  // namespace shoal::train
