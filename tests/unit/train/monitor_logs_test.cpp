#include "train/monitor_logs.h"

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <vector>

#include "message_of.h"
#include "temp_folder.h"

namespace shoal::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TempFolder;

Config config_with(bool tensorboard, bool csv, const std::string& path = "") {
  Config config;
  config.monitor.tensorboard = {tensorboard, path, "job"};
  config.monitor.csv = {csv, path, "job"};
  return config;
}

std::string mistake_of(const std::string& log, const Config& config = {}, const std::string& out = "run") {
  TrainOptions options;
  options.log = log;
  options.out = out;
  return message_of([&] { log_folders(options, config); });
}

TEST(LogFolders, AreThoseOfTheFlagAndOfTheConfig) {
  TrainOptions options;
  options.out = "run";
  EXPECT_EQ(log_folders(options, {}).tensorboard, "");
  EXPECT_EQ(log_folders(options, {}).csv, "");
  EXPECT_EQ(log_folders(options, config_with(true, false)).tensorboard, "run/tensorboard");
  EXPECT_EQ(log_folders(options, config_with(true, true, "logs")).csv, "logs/job");
  options.log = "csv,tensorboard";
  EXPECT_EQ(log_folders(options, {}).tensorboard, "run/tensorboard");
  EXPECT_EQ(log_folders(options, {}).csv, "run/csv");
  EXPECT_EQ(log_folders(options, config_with(false, false, "logs")).csv, "logs/job") << "the config says where";
  options.out = "";
  EXPECT_EQ(log_folders(options, config_with(false, false, "logs")).csv, "logs/job");
}

TEST(LogFolders, WhatCannotBeIsRefused) {
  EXPECT_EQ(mistake_of("tensorbord"),
            "[--log] \"tensorbord\" is no log. Did you mean tensorboard? Give tensorboard, csv or both, with a comma "
            "between them.");
  EXPECT_THAT(mistake_of("csv,"), ::testing::IsEmpty());
  EXPECT_THAT(mistake_of("csv,,tensorboard"), HasSubstr("\"\" is no log"));
  EXPECT_THAT(mistake_of("csv,wandb"), HasSubstr("[--log] wandb is a Python package"));
  EXPECT_EQ(mistake_of("csv", {}, ""), "[--log] csv has no folder to write to. Give --out DIR.");
  EXPECT_EQ(mistake_of("", config_with(true, false), ""),
            "[config] tensorboard has no folder to write to. Give --out DIR.");
  Config wandb;
  wandb.monitor.wandb.enabled = true;
  EXPECT_THAT(mistake_of("", wandb), HasSubstr("[config wandb] "));
}

StepMetrics step_of(double loss) {
  StepMetrics metrics;
  metrics.loss = loss;
  metrics.lr = 0.1;
  metrics.grad_norm = 2;
  metrics.loss_scale = 1024;
  return metrics;
}

TEST(MonitorLogs, WritesWhatDeepSpeedCallsIt) {
  const TempFolder folder;
  MonitorLogs log({"", folder.path()}, std::nullopt, /*scales_loss=*/true, {});
  log.write(8, step_of(0.5));
  StepMetrics skipped = step_of(std::nan(""));
  skipped.skipped = true;
  skipped.grad_norm = INFINITY;
  log.write(16, skipped);
  EvalMetrics evaluated;
  evaluated.loss = 3;
  log.write(16, evaluated);
  EXPECT_EQ(folder.read("Train_Samples_train_loss.csv"), "step,train_loss\r\n8,0.5\r\n16,nan\r\n");
  EXPECT_EQ(folder.read("Train_Samples_lr.csv"), "step,lr\r\n8,0.1\r\n16,0.1\r\n");
  EXPECT_EQ(folder.read("Train_Samples_loss_scale.csv"), "step,loss_scale\r\n8,1024.0\r\n16,1024.0\r\n");
  EXPECT_EQ(folder.read("Train_Samples_grad_norm.csv"), "step,grad_norm\r\n8,2.0\r\n16,inf\r\n");
  EXPECT_EQ(folder.read("Validation_Samples_loss.csv"), "step,loss\r\n16,3.0\r\n");
}

TEST(MonitorLogs, HasNoLossScaleWhereThereIsNone) {
  const TempFolder folder;
  MonitorLogs({"", folder.path()}, std::nullopt, /*scales_loss=*/false, {}).write(8, step_of(1));
  EXPECT_FALSE(std::filesystem::exists(folder / "Train_Samples_loss_scale.csv"));
}

TEST(MonitorLogs, SaysOnceThatItCannotWriteAndGoesOn) {
  const TempFolder folder;
  std::vector<std::string> said;
  MonitorLogs log({folder / "events", folder / "csv"}, std::nullopt, false,
                  [&](const std::string& line) { said.push_back(line); });
  std::filesystem::remove_all(folder / "csv");
  log.write(8, step_of(1));
  log.write(16, step_of(1));
  EXPECT_THAT(said, ElementsAre(::testing::AllOf(HasSubstr("[log csv] "), HasSubstr("Training goes on"))));
  std::filesystem::create_directory(folder / "csv");
  log.write(24, step_of(1));
  EXPECT_EQ(folder.read("csv/Train_Samples_lr.csv"), "step,lr\r\n24,0.1\r\n") << "it goes on when it can";
}

TEST(MonitorLogs, WithoutFoldersWritesNothing) { MonitorLogs({}, 8, true, {}).write(8, step_of(1)); }

}  // namespace
}  // namespace shoal::train
