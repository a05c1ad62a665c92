#include "train/run_config.h"

#include <gmock/gmock.h>

#include "message_of.h"
#include "temp_folder.h"

namespace shoal::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TempFolder;

TrainOptions options_with(const std::string& config_path) {
  TrainOptions options;
  options.config_path = config_path;
  options.steps = 100;
  return options;
}

TEST(RunConfig, WithoutAConfigEverythingIsChosenAndSaid) {
  const RunConfig run = make_run_config(options_with(""), 2, 64);
  EXPECT_EQ(run.config.zero.stage, 3);
  EXPECT_EQ(run.config.precision, Precision::fp32);
  EXPECT_EQ(run.config.optimizer.kind, OptimizerKind::adamw);
  EXPECT_EQ(run.config.optimizer.lr, kDefaultLr);
  EXPECT_EQ(run.config.batch.train_batch_size, 2 * kDefaultMicroBatch);
  EXPECT_THAT(run.choices,
              ElementsAre(HasSubstr("stage 3"), HasSubstr("AdamW with learning rate 0.0003"), HasSubstr("8 samples")));
}

TEST(RunConfig, AFolderIsNoConfig) {
  const TempFolder folder;
  EXPECT_EQ(message_of([&] { make_run_config(options_with(folder.path()), 1, 64); }),
            "[config " + folder.path() + "] the file cannot be read: it is a folder. Give the path of a JSON file.");
}

TEST(RunConfig, WhatTheConfigSaysIsNotChosen) {
  const TempFolder folder;
  const std::string path = folder.write("ds.json", R"({
    "train_batch_size": 12, "zero_optimization": {"stage": 1},
    "optimizer": {"type": "SGD", "params": {"lr": 0.5}}
  })");
  const RunConfig run = make_run_config(options_with(path), 2, 64);
  EXPECT_EQ(run.config.batch.micro_batch_size, 6);
  EXPECT_EQ(run.config.optimizer.kind, OptimizerKind::sgd);
  EXPECT_EQ(run.config.optimizer.lr, 0.5);
  EXPECT_THAT(run.choices, ElementsAre());
}

TEST(RunConfig, FlagsComeBeforeTheFileAndSetBeforeBoth) {
  const TempFolder folder;
  const std::string path = folder.write("ds.json", R"({
    "train_batch_size": 12, "optimizer": {"type": "AdamW", "params": {"lr": 0.5}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.5, "warmup_num_steps": 10}}
  })");
  TrainOptions options = options_with(path);
  options.lr = 0.25;
  EXPECT_EQ(make_run_config(options, 2, 64).config.optimizer.lr, 0.25);
  EXPECT_EQ(make_run_config(options, 2, 64).config.scheduler.params.at("warmup_max_lr"), 0.25);
  options.overrides = {"optimizer.params.lr=0.125", "zero_optimization.stage=2"};
  EXPECT_EQ(make_run_config(options, 2, 64).config.optimizer.lr, 0.125);
  EXPECT_EQ(make_run_config(options, 2, 64).config.zero.stage, 2);
}

TEST(RunConfig, AnnouncesThePrecisionAndStageThatHold) {
  TrainOptions options = options_with("");
  EXPECT_THAT(make_run_config(options, 2, 64).choices[0], HasSubstr("no --config: stage 3 in fp32"));
  options.overrides = {"bf16.enabled=true", "zero_optimization.stage=1"};
  EXPECT_THAT(make_run_config(options, 2, 64).choices[0], HasSubstr("no --config: stage 1 in bf16"));
}

TEST(RunConfig, OneKeyOfTheOptimizerLeavesTheOthersToUs) {
  TrainOptions options = options_with("");
  options.overrides = {"optimizer.params.weight_decay=0.1"};
  const RunConfig run = make_run_config(options, 2, 64);
  EXPECT_EQ(run.config.optimizer.kind, OptimizerKind::adamw);
  EXPECT_EQ(run.config.optimizer.lr, kDefaultLr);
  EXPECT_EQ(run.config.optimizer.weight_decay, 0.1);
  EXPECT_THAT(run.choices[1], HasSubstr("AdamW with learning rate 0.0003"));
}

TEST(RunConfig, ALearningRateThatTheScheduleWouldIgnoreIsRefused) {
  const TempFolder folder;
  TrainOptions options = options_with(folder.write("ds.json", R"({
    "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.001, "cycle_max_lr": 0.01}}
  })"));
  options.lr = 0.5;
  EXPECT_THAT(message_of([&] { make_run_config(options, 2, 64); }), HasSubstr("[--lr] the schedule OneCycle"));
  options = options_with("");
  options.lr = -1;
  EXPECT_THAT(message_of([&] { make_run_config(options, 2, 64); }), HasSubstr("[--lr] -1 is not a learning rate"));
}

TEST(RunConfig, FillsAutoWithTheRunsOwnNumbers) {
  const TempFolder folder;
  const std::string path = folder.write("ds.json", R"({
    "train_micro_batch_size_per_gpu": "auto",
    "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto", "warmup_max_lr": "auto", "warmup_num_steps": 5}},
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": "auto"}
  })");
  TrainOptions options = options_with(path);
  options.lr = 0.25;
  const Config config = make_run_config(options, 2, 64).config;
  EXPECT_EQ(config.batch.micro_batch_size, kDefaultMicroBatch);
  EXPECT_EQ(config.optimizer.lr, 0.25);
  EXPECT_EQ(config.scheduler.params.at("total_num_steps"), 100);
  EXPECT_EQ(config.scheduler.params.at("warmup_max_lr"), 0.25);
  EXPECT_EQ(config.zero.param_persistence_threshold, 640);
}

TEST(RunConfig, MistakesNameTheFile) {
  const TempFolder folder;
  const std::string path = folder.write("ds.json", R"({"train_batch_size": 3, "zero_optimisation": {}})");
  EXPECT_THAT(message_of([&] { make_run_config(options_with(path), 2, 64); }), HasSubstr("zero_optimization"));
  EXPECT_THAT(message_of([&] { make_run_config(options_with(folder / "none"), 2, 64); }), HasSubstr("cannot be read"));
  EXPECT_THAT(message_of([&] { make_run_config(options_with(folder.write("bad.json", "{")), 2, 64); }),
              HasSubstr("bad.json line 1"));
}

// The banner's promise stands on it: with batch and micro-batch given, the accumulation follows from the ranks.
TEST(RunConfig, FindsTheNumbersOfRanksWithTheSameLeaves) {
  const auto worlds = [](std::vector<std::string> overrides, int world) {
    TrainOptions options = options_with("");
    options.overrides = std::move(overrides);
    return make_run_config(options, world, 64).same_leaves;
  };
  const std::string batch = "train_batch_size=24", micro = "train_micro_batch_size_per_gpu=2";
  for (const int world : {1, 2, 3, 4, 6, 12}) {
    TrainOptions options = options_with("");
    options.overrides = {batch, micro};
    EXPECT_EQ(make_run_config(options, world, 64).config.batch.accumulation_steps, 12 / world);
    EXPECT_THAT(worlds({batch, micro}, world), ElementsAre(1, 2, 3, 4, 6, 12));
  }
  EXPECT_THAT(worlds({batch}, 2), ElementsAre(2)) << "the micro-batch follows from the ranks";
  EXPECT_THAT(worlds({micro}, 2), ElementsAre(2)) << "the batch follows from the ranks";
  EXPECT_THAT(worlds({batch, micro, "gradient_accumulation_steps=6"}, 2), ElementsAre(2));
  EXPECT_THAT(worlds({}, 4), ElementsAre(4));
}

}  // namespace
}  // namespace shoal::train
