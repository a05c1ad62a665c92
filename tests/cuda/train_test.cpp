// `shoal train` on a GPU, with real processes that share it: every stage writes the same loss and norm, character for
// character, over shared memory and over Gloo, and a run that is stopped goes on with the same bits. A trace shows what
// the GPU stood still for.
#include <gtest/gtest.h>

#include <map>

#include "device/cuda.h"
#include "process/train_run.h"

namespace shoal::testing {
namespace {

class GpuTrain : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU: " << cuda::why_none();
  }

  // metrics.jsonl of a run of two ranks.
  std::string metrics_of(const std::string& out, std::vector<std::string> more) const {
    more.insert(more.end(), {"--device", "cuda", "--deterministic", "--ranks", "2"});
    const Result result = Command(train_words(folder_, "llama", out, more)).wait();
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    return folder_.read(out + "/metrics.jsonl");
  }
  static void expect_same(const std::string& a, const std::string& b, const std::string& what) {
    for (const char* key : {"loss", "grad_norm", "lr", "loss_scale", "skipped"}) {
      EXPECT_EQ(column(a, key), column(b, key)) << key << ", " << what;
    }
  }

  RunFolder folder_;
};

TEST_F(GpuTrain, EveryStageOnTwoProcessesOfOneGpuWritesTheSameLossAndNorm) {
  for (const std::string precision : {"fp32", "bf16"}) {
    std::string first;
    for (int stage = 0; stage <= 3; ++stage) {
      std::vector<std::string> more = {"--steps", "6", "--no-final-save", "--set",
                                       "zero_optimization.stage=" + std::to_string(stage)};
      if (precision == "bf16") more.insert(more.end(), {"--set", "bf16.enabled=true", "--recompute", "full"});
      const std::string metrics = metrics_of(precision + std::to_string(stage), more);
      if (stage == 0) {
        first = metrics;
        ASSERT_EQ(column(first, "loss").size(), 6u);
        EXPECT_LT(numbers(column(first, "loss"))[5], numbers(column(first, "loss"))[0]);
      }
      expect_same(metrics, first, precision + " at stage " + std::to_string(stage));
    }
  }
}

TEST_F(GpuTrain, GlooHasTheBitsOfSharedMemory) {
  const std::vector<std::string> words = {"--steps", "4", "--no-final-save", "--set", "zero_optimization.stage=3"};
  const std::string shared = metrics_of("shared", words);
  std::vector<std::string> gloo = words;
  gloo.insert(gloo.end(), {"--set", "shoal.transport=gloo"});
  expect_same(metrics_of("gloo", gloo), shared, "gloo");
}

TEST_F(GpuTrain, AStoppedRunGoesOnWithTheSameBits) {
  const std::vector<std::string> words = {"--steps",          "6", "--set", "zero_optimization.stage=3", "--set",
                                          "bf16.enabled=true"};
  const std::string whole = metrics_of("whole", words);
  std::vector<std::string> part = words;
  part.insert(part.end(), {"--stop-at", "3"});
  metrics_of("part", part);
  part = words;
  part.insert(part.end(), {"--resume", "auto"});
  expect_same(metrics_of("part", part), whole, "resumed");
}

// Weights that ranks send each other may come in time: their lane is not always there.
TEST_F(GpuTrain, ATraceShowsWhatTheGpuStoodStillFor) {
  const std::vector<std::string> words = {"--steps",
                                          "6",
                                          "--no-final-save",
                                          "--trace-steps",
                                          "3-5",
                                          "--set",
                                          "zero_optimization.stage=3",
                                          "--set",
                                          "zero_optimization.stage3_param_persistence_threshold=0"};
  metrics_of("on_gpu", words);
  const std::map<std::string, double> on_gpu = traced_waits(folder_, "on_gpu");
  EXPECT_EQ(on_gpu.count("ranks: gradients"), 1u);
  for (const auto& [what, seconds] : on_gpu) EXPECT_TRUE(what.starts_with("ranks")) << what;
  std::vector<std::string> on_host = words;
  on_host.insert(on_host.end(), {"--set", "zero_optimization.offload_param={\"device\": \"cpu\"}"});
  metrics_of("on_host", on_host);
  const std::map<std::string, double> of_host = traced_waits(folder_, "on_host");
  EXPECT_EQ(of_host.count("host: weights"), 1u);
  EXPECT_EQ(of_host.count("ranks: weights"), 0u) << "they are the host's now";
}

}  // namespace
}  // namespace shoal::testing
