// `shoal train --share-gpu`: ranks of one GPU over NCCL write the losses and norms, character for character, of the
// same ranks whose bytes go through the hosts and of other numbers of ranks, also when a run goes on from a checkpoint.
// Prints a table.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <list>

#include "device/cuda.h"
#include "process/train_run.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;

class NcclTrain : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU: " << cuda::why_none();
  }

  // A run that is under way, and at its end its metrics.jsonl.
  class Run {
   public:
    Run(const RunFolder& folder, const std::string& out, const Words& more)
        : folder_(folder),
          out_(out),
          over_nccl_(std::find(more.begin(), more.end(), "--share-gpu") != more.end()),
          command_(train_words(folder, "llama", out, more + kCommon)) {}
    const std::string& name() const { return out_; }
    std::string metrics() {
      const Result result = command_.wait();
      EXPECT_EQ(result.exit_code, 0) << out_ << "\n" << result.out << result.err;
      if (over_nccl_) {
        EXPECT_THAT(result.out, HasSubstr("over GPU, NCCL")) << out_;
      }
      return folder_.read(out_ + "/metrics.jsonl");
    }

   private:
    inline static const Words kCommon = {"--device", "cuda", "--deterministic", "--set",
                                         "train_micro_batch_size_per_gpu=1"};
    const RunFolder& folder_;
    std::string out_;
    bool over_nccl_;
    Command command_;
  };
  std::string metrics_of(const std::string& out, const Words& more) const { return Run(folder_, out, more).metrics(); }
  static void expect_same(const std::string& a, const std::string& b, const std::string& what) {
    for (const char* key : {"loss", "grad_norm", "lr", "loss_scale", "skipped"}) {
      EXPECT_EQ(column(a, key), column(b, key)) << key << ", " << what;
    }
  }
  static Words over_nccl(int ranks) {
    return {"--ranks", std::to_string(ranks), "--share-gpu", "--set", "shoal.transport=nccl"};
  }
  static Words through_hosts(int ranks) { return {"--ranks", std::to_string(ranks)}; }

  RunFolder folder_;
};

struct Setting {
  std::string name;
  Words words;
};

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (int stage = 0; stage <= 3; ++stage) {
    all.push_back({fmt::format("stage {}, bf16", stage),
                   {"--set", fmt::format("zero_optimization.stage={}", stage), "--set", "bf16.enabled=true", "--set",
                    "shoal.reproducible=true"}});
  }
  const Words stage3 = {"--set", "zero_optimization.stage=3"};
  const Words bf16 = {"--set", "bf16.enabled=true"};
  all.push_back({"stage 3, fp32, recompute", stage3 + Words{"--recompute", "full"}});
  all.push_back({"stage 3, fp16", stage3 + Words{"--set", "fp16.enabled=true"}});
  all.push_back({"stage 3, fp8", stage3 + bf16 + Words{"--set", "fp8.enabled=true"}});
  all.push_back(
      {"stage 3, weights and states on the host",
       stage3 + bf16 +
           Words{"--set", "zero_optimization.offload_param={\"device\": \"cpu\"}", "--set",
                 "zero_optimization.offload_optimizer={\"device\": \"cpu\"}", "--set", "shoal.offload_update=cpu"}});
  return all;
}

TEST_F(NcclTrain, WritesTheSameCharactersAtEveryNumberOfRanksAndThroughTheHosts) {
  const Words short_run = {"--steps", "5", "--no-final-save"};
  fmt::print("{:<44} {:>20} {:>20} {:>20} {:>20}\n", "setting", "loss of 1 rank", "2, through hosts", "2, NCCL",
             "4, NCCL");
  for (const Setting& setting : settings()) {
    const Words words = setting.words + short_run;
    std::list<Run> runs;  // side by side
    runs.emplace_back(folder_, "alone " + setting.name, words + through_hosts(1));
    runs.emplace_back(folder_, "hosts " + setting.name, words + through_hosts(2));
    for (const int ranks : {2, 4}) {
      runs.emplace_back(folder_, fmt::format("{} ranks, {}", ranks, setting.name), words + over_nccl(ranks));
    }
    const std::string alone = runs.front().metrics();
    ASSERT_EQ(column(alone, "loss").size(), 5u) << setting.name;
    std::string line = fmt::format("{:<44} {:>20}", setting.name, column(alone, "loss").back());
    for (runs.pop_front(); !runs.empty(); runs.pop_front()) {
      const std::string metrics = runs.front().metrics();
      expect_same(metrics, alone, runs.front().name());
      line += fmt::format(" {:>20}", column(metrics, "loss").back());
    }
    fmt::print("{}\n", line);
  }
}

TEST_F(NcclTrain, WritesTheCharactersOfOneRankAtEightRanks) {
  const Words words = {"--steps",          "5", "--no-final-save", "--set", "zero_optimization.stage=3", "--set",
                       "bf16.enabled=true"};
  const std::string alone = metrics_of("alone", words + through_hosts(1));
  expect_same(metrics_of("eight", words + over_nccl(8)), alone, "8 ranks");
}

TEST_F(NcclTrain, AStoppedRunGoesOnWithTheSameBitsOverNccl) {
  const Words words = {"--steps", "6", "--set", "zero_optimization.stage=3", "--set", "bf16.enabled=true"};
  const std::string whole = metrics_of("whole", words + through_hosts(2));
  metrics_of("part", words + over_nccl(2) + Words{"--stop-at", "3"});
  expect_same(metrics_of("part", words + over_nccl(2) + Words{"--resume", "auto"}), whole, "resumed");
}

// NCCL's own sum trains too; nothing is said of its bits but at two ranks, where there is one order.
TEST_F(NcclTrain, NcclsOwnSumTrainsForWhoWantsIt) {
  const Words words = {"--steps", "6", "--no-final-save", "--set", "zero_optimization.stage=3"};
  const std::string exact = metrics_of("exact", words + over_nccl(4));
  const std::string own = metrics_of("own", words + over_nccl(4) + Words{"--set", "shoal.reduce=nccl"});
  const std::vector<double> a = numbers(column(exact, "loss")), b = numbers(column(own, "loss"));
  ASSERT_EQ(a.size(), b.size());
  for (size_t step = 0; step < a.size(); ++step) EXPECT_NEAR(a[step], b[step], 1e-3 * a[step]);
}

}  // namespace
}  // namespace shoal::testing
