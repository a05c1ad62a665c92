// The words and the choice of the checkpoint; tests/process/train_restarts_test.cpp kills ranks.
#include "train/restarts.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>

#include "temp_folder.h"
#include "train/trainer.h"

namespace shoal::train {
namespace {

using launch::LaunchOutcome;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempFolder;

const LaunchOutcome kKilled{.ends = {{.rank = 1, .signal = SIGKILL}, {.rank = 0, .exit_code = 1}}};

// A run of these steps in `run`, with a checkpoint each.
void take_steps(const TempFolder& folder, int64_t steps, const std::string& resume) {
  folder.write("model/config.json", R"({"model_type": "llama", "hidden_size": 16, "intermediate_size": 32,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5, "vocab_size": 256})");
  TrainOptions options;
  options.model = folder / "model";
  options.data = "synthetic:tokens=5000";
  options.steps = 9;
  options.stop_at = steps;
  options.save_every = 1;
  options.threads = 1;
  options.log_every = 0;
  options.out = folder / "run";
  options.resume = resume;
  ASSERT_EQ(train(options, prepare_run(options, 1)), 0);
}

RestartOptions in(const TempFolder& folder, const std::string& first_checkpoint = "") {
  return {.out = folder / "run", .first_checkpoint = first_checkpoint, .command = {"shoal", "train"}, .restarts = 2};
}

TEST(Restarts, GoOnFromTheNewestCheckpointOrBeginAgain) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "run/checkpoints");
  Restarts restarts(in(folder));
  EXPECT_THAT(restarts.after(kKilled).value(), ElementsAre("shoal", "train", "--restarted-from", "beginning"));
  take_steps(folder, 2, "");
  EXPECT_THAT(restarts.after(kKilled).value(),
              ElementsAre("shoal", "train", "--restarted-from", folder / "run/checkpoints/step-00000002"));
  EXPECT_EQ(restarts.after(kKilled), std::nullopt);
  const std::string events = folder.read("run/events.jsonl");
  EXPECT_THAT(events, HasSubstr(R"({"event": "restart", "step": 0,)"));
  EXPECT_THAT(events, HasSubstr("rank 1 ended with signal 9 (Killed)"));
  EXPECT_THAT(events, HasSubstr(R"("restart": 2, "restarts": 2, "checkpoint": ")"));
}

TEST(Restarts, WhatWasSavedBeforeTheLaunchIsNotGoneOnFrom) {
  const TempFolder folder;
  take_steps(folder, 3, "");
  const std::string back = folder / "run/checkpoints/step-00000001";
  Restarts restarts(in(folder, back));
  EXPECT_EQ(restarts.after(kKilled).value().back(), back);
  take_steps(folder, 3, back);  // saves steps 2 and 3 again, under the same names
  EXPECT_EQ(restarts.after(kKilled).value().back(), folder / "run/checkpoints/step-00000003");
}

TEST(Restarts, AFolderThatIsGoneOrFullStopsNothing) {
  const TempFolder folder;
  Restarts restarts(in(folder));
  EXPECT_EQ(restarts.after(kKilled).value().back(), "beginning");
}

TEST(Restarts, DoNotRepeatAWrongConfig) {
  const TempFolder folder;
  Restarts restarts(in(folder));
  EXPECT_EQ(restarts.after({.ends = {{.rank = 0, .exit_code = 2}}}), std::nullopt);
}

TEST(RestartPoint, IsTheNewestCheckpointOfTheRunAlone) {
  const TempFolder folder;
  TrainOptions options;
  options.out = folder / "run";
  EXPECT_EQ(restart_point(options), "");
  take_steps(folder, 2, "");
  for (const char* resume : {"", "auto"}) {
    options.resume = resume;
    EXPECT_EQ(restart_point(options), folder / "run/checkpoints/step-00000002");
  }
  const std::string back = folder / "run/checkpoints/step-00000001";
  options.resume = back;
  EXPECT_EQ(restart_point(options), back);
  std::filesystem::rename(folder / "run", folder / "other");
  options.resume = folder / "other";
  EXPECT_EQ(restart_point(options), folder / "other/checkpoints/step-00000002") << "before a save of its own";
  take_steps(folder, 1, "");
  EXPECT_EQ(restart_point(options), folder / "run/checkpoints/step-00000001");
}

}  // namespace
}  // namespace shoal::train
