#include "train/metrics_file.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "base/json.h"
#include "message_of.h"
#include "temp_folder.h"

namespace shoal::train {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::TempFolder;

StepMetrics at_step(int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  return metrics;
}

TEST(MetricsLine, HasTheLoadOfExpertsWhereThereAreAny) {
  StepMetrics metrics = at_step(1);
  EXPECT_THAT(to_line(metrics), ::testing::Not(HasSubstr("expert")));
  metrics.busiest_experts = {1.23456, 2};
  metrics.idle_experts = 3;
  EXPECT_THAT(to_line(metrics), HasSubstr(R"("busiest_experts": [1.235, 2], "idle_experts": 3)"));
  EXPECT_THAT(to_line(metrics), ::testing::Not(HasSubstr("router_aux_loss")));
  metrics.balance_loss = 2.5;
  EXPECT_THAT(to_line(metrics), HasSubstr(R"("router_aux_loss": 2.5, "busiest_experts")"));
}

TEST(MetricsLine, HasEveryKeyInOrder) {
  const StepMetrics metrics{.step = 3,
                            .loss = 2.5,
                            .grad_norm = 0.1,
                            .lr = 3e-4,
                            .loss_scale = 65536,
                            .skipped = true,
                            .tokens = 1024,
                            .tokens_per_s = 12.5,
                            .step_ms = 1.5,
                            .wait_comm_ms = 0.25,
                            .wait_host_ms = 0.125,
                            .wait_disk_ms = 0.5,
                            .wait_weights_ms = 0.125,
                            .wait_gradients_ms = 0.0625,
                            .wait_losses_ms = 0.03125,
                            .carried_ms = 0.75,
                            .data_ms = 2,
                            .save_ms = 12.5,
                            .slow_rank = 3,
                            .host_to_gpu_nbytes = 40,
                            .gpu_to_host_nbytes = 30,
                            .disk_read_nbytes = 20,
                            .disk_written_nbytes = 10,
                            .sent_nbytes = 7,
                            .sent_between_hosts_nbytes = 5};
  EXPECT_EQ(
      to_line(metrics),
      R"({"step": 3, "loss": 2.5, "grad_norm": 0.1, "lr": 0.0003, "loss_scale": 65536, "skipped": true, )"
      R"("tokens": 1024, "tokens_per_s": 12.5, "step_ms": 1.5, "wait_comm_ms": 0.25, "wait_host_ms": 0.125, )"
      R"("wait_disk_ms": 0.5, "wait_weights_ms": 0.125, "wait_gradients_ms": 0.0625, "wait_losses_ms": 0.03125, )"
      R"("carried_ms": 0.75, "data_ms": 2, "save_ms": 12.5, "slow_rank": 3, "host_to_gpu_bytes": 40, "gpu_to_host_bytes": 30, )"
      R"("disk_read_bytes": 20, )"
      R"("disk_written_bytes": 10, "sent_bytes": 7, "sent_between_hosts_bytes": 5})");
}

TEST(MetricsLine, FloatsReadBackToTheSameBits) {
  for (const double number : {0.1, 1.0 / 3, 5.430791378021240234375, 1e-320, 1.7976931348623157e308}) {
    StepMetrics metrics;
    metrics.loss = number;
    EXPECT_EQ(json::parse(to_line(metrics), "line").find("loss")->as_number(), number);
  }
}

TEST(MetricsLine, WhatIsNotFiniteIsNull) {
  StepMetrics metrics;
  metrics.loss = std::nan("");
  metrics.grad_norm = std::numeric_limits<double>::infinity();
  const json::Value line = json::parse(to_line(metrics), "line");
  EXPECT_TRUE(line.find("loss")->is_null());
  EXPECT_TRUE(line.find("grad_norm")->is_null());
}

TEST(EvalLine, HasEveryKeyInOrder) {
  EXPECT_EQ(to_line(EvalMetrics{.step = 3, .loss = 2.5, .tokens = 8, .eval_ms = 1.5}),
            R"({"step": 3, "loss": 2.5, "tokens": 8, "eval_ms": 1.5})");
}

TEST(MetricsFile, ALineIsInTheFileWhenAppendReturns) {
  const TempFolder folder;
  MetricsFile file(folder / "m", 0);
  file.append("{\"step\": 1}");
  EXPECT_EQ(folder.read("m"), "{\"step\": 1}\n");
}

TEST(MetricsFile, AResumedRunDropsLaterLinesAndWhatWasCutOff) {
  const TempFolder folder;
  {
    MetricsFile file(folder / "m", 0);
    for (int64_t step = 1; step <= 5; ++step) file.append(to_line(at_step(step)));
  }
  const std::string whole = folder.read("m");
  { MetricsFile file(folder / "m", 5); }
  EXPECT_EQ(folder.read("m"), whole);
  folder.write("m", whole + "{\"step\": 6, \"lo");
  { MetricsFile file(folder / "m", 9); }
  EXPECT_EQ(folder.read("m"), whole);
  {
    MetricsFile file(folder / "m", 3);
    file.append(to_line(at_step(4)));
  }
  EXPECT_EQ(folder.read("m"), whole.substr(0, folder.read("m").size()));
  EXPECT_THAT(folder.read("m"), HasSubstr("\"step\": 4"));
  { MetricsFile file(folder / "m", 0); }
  EXPECT_EQ(folder.read("m"), "");
}

TEST(MetricsFile, ALineThatCannotBeReadDoesNotTakeTheLaterOnesWithIt) {
  const TempFolder folder;
  const std::string lines = "{\"step\": 1}\n{\"st\n{\"step\": 3}\n";
  folder.write("m", lines + "{\"step\": 4}\n");
  { MetricsFile file(folder / "m", 3); }
  EXPECT_EQ(folder.read("m"), lines);
}

TEST(LastStep, IsThatOfTheLastWholeLine) {
  const TempFolder folder;
  EXPECT_EQ(last_step_in(folder / "m"), 0);
  folder.write("m", "");
  EXPECT_EQ(last_step_in(folder / "m"), 0);
  folder.write("m", "{\"step\": 1}\n{\"step\": 20, \"loss\": 2}\n{\"st\n{\"step\": 21}");
  EXPECT_EQ(last_step_in(folder / "m"), 20);
  std::string many;
  for (int step = 1; step <= 5000; ++step) many += "{\"step\": " + std::to_string(step) + ", \"loss\": 2.5}\n";
  folder.write("m", many);
  EXPECT_EQ(last_step_in(folder / "m"), 5000);
}

TEST(MetricsFile, SaysWhenTheDiskIsFull) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full on this machine";
  const TempFolder folder;
  std::filesystem::create_symlink("/dev/full", folder / "m");
  EXPECT_THAT(message_of([&] { MetricsFile(folder / "m", 0).append("{}"); }), HasSubstr("cannot be written"));
}

}  // namespace
}  // namespace shoal::train
