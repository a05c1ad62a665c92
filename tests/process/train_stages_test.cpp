// The command trains the same at every stage, character for character, and reaches the loss that its data allows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/narrow_arithmetic.h"
#include "process/train_run.h"

namespace shoal::testing {
namespace {

struct Case {
  const char* name;
  std::vector<std::string> words;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class EveryStage : public ::testing::TestWithParam<Case> {};

TEST_P(EveryStage, WritesTheSameLossAndNorm) {
  const RunFolder folder;
  std::string first, first_eval;
  for (int stage = 0; stage <= 3; ++stage) {
    const std::string out = "stage" + std::to_string(stage);
    std::vector<std::string> more = {
        "--ranks",        "2", "--steps", "6",
        "--eval-every",   "3", "--set",   "zero_optimization.stage=" + std::to_string(stage),
        "--no-final-save"};
    more.insert(more.end(), GetParam().words.begin(), GetParam().words.end());
    const Result result = Command(train_words(folder, "llama", out, more)).wait();
    ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
    const std::string metrics = folder.read(out + "/metrics.jsonl");
    ASSERT_EQ(column(metrics, "step"), (std::vector<std::string>{"1", "2", "3", "4", "5", "6"})) << metrics;
    if (stage == 0) {
      first = metrics;
      first_eval = folder.read(out + "/eval.jsonl");
      EXPECT_LT(numbers(column(first, "loss"))[5], numbers(column(first, "loss"))[0]);
    }
    for (const char* key : {"loss", "grad_norm", "lr", "loss_scale", "skipped", "tokens"}) {
      EXPECT_EQ(column(metrics, key), column(first, key)) << key << " at stage " << stage;
    }
    EXPECT_EQ(column(folder.read(out + "/eval.jsonl"), "loss"), column(first_eval, "loss")) << "stage " << stage;
    EXPECT_EQ(column(first_eval, "step"), (std::vector<std::string>{"3", "6"}));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Train, EveryStage,
    ::testing::Values(Case{"fp32", {}}, Case{"bf16", {"--set", "bf16.enabled=true", "--recompute", "full"}},
                      Case{"selective", {"--set", "fp16.enabled=true", "--recompute", "selective"}},
                      Case{"automatic", {"--recompute", "auto", "--set", "shoal.device_budget=1"}},
                      Case{"accumulated",
                           {"--set", "gradient_accumulation_steps=2", "--set", "shoal.reproducible=true"}}),
    [](const auto& info) { return info.param.name; });

// On a CPU that lacks the precision torch alone would print a backtrace at the first product.
TEST(Train, In16BitsPrintsNoWarningAndSaysHowProductsAreMade) {
  const RunFolder folder;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const std::string name(name_of(dtype));
    for (const char* model : {"llama", "gpt2"}) {
      const Result result = train(folder, model, name + model, {"--steps", "1", "--set", name + ".enabled=true"});
      ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
      for (const char* unwanted : {"Warning", "[W", "frame #"}) {
        EXPECT_THAT(result.out + result.err, ::testing::Not(::testing::HasSubstr(unwanted)));
      }
      const std::string why = kernels::why_no_arithmetic(dtype), said = name + ": products in fp32, " + why;
      EXPECT_EQ(result.out.find(said) != std::string::npos, !why.empty()) << result.out;
    }
  }
}

// The successor with probability 1 - surprise + surprise / vocab, every other token with surprise / vocab.
TEST(Train, SyntheticDataIsLearnedDownToItsEntropy) {
  const RunFolder folder;
  folder.write("small/config.json", RunFolder::llama_config(16));
  const double surprise = 0.3, other = surprise / 16, successor = 1 - surprise + other;
  const double entropy = -successor * std::log(successor) - 15 * other * std::log(other);
  const Result result = Command({SHOAL_BINARY, "train", "--model", folder / "small", "--data", "synthetic:surprise=0.3",
                                 "--sequence", "64", "--steps", "150", "--lr", "0.01", "--set", "train_batch_size=16",
                                 "--threads", "1", "--out", folder / "run", "--no-final-save"})
                            .wait();
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  const std::vector<double> losses = numbers(column(folder.read("run/metrics.jsonl"), "loss"));
  ASSERT_EQ(losses.size(), 150u);
  EXPECT_NEAR(losses.front(), std::log(16.0), 0.3);
  EXPECT_NEAR(std::accumulate(losses.end() - 20, losses.end(), 0.0) / 20, entropy, 0.05);
}

}  // namespace
}  // namespace shoal::testing
