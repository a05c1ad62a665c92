// A run that was stopped, interrupted or killed goes on as if it had never been: the same characters in its metrics at
// the same world size, the same batches at another.
#include <gmock/gmock.h>

#include "process/train_run.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;

// 12 steps are more than two epochs; the stop is in the middle of one.
const Words kSteps = {"--steps", "12",
                      "--set",   "scheduler.type=WarmupCosineLR",
                      "--set",   "scheduler.params={\"total_num_steps\": \"auto\", \"warmup_num_steps\": 3}"};

struct Case {
  const char* name;
  const char* model;
  Words words;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class Resumed : public ::testing::TestWithParam<Case> {};

TEST_P(Resumed, ContinuesWithTheSameCharacters) {
  const auto& [name, model, words] = GetParam();
  const RunFolder folder;
  const Words all = kSteps + words + Words{"--ranks", "2"};
  const Result whole = train(folder, model, "whole", all + Words{"--no-final-save"});
  ASSERT_EQ(whole.exit_code, 0) << whole.out << whole.err;
  const Result first = train(folder, model, "run", all + Words{"--stop-at", "7"});
  ASSERT_EQ(first.exit_code, 0) << first.out << first.err;
  const Result second = train(folder, model, "run", all + Words{"--resume", "auto"});
  ASSERT_EQ(second.exit_code, 0) << second.out << second.err;
  EXPECT_THAT(second.out, HasSubstr("at step 7, 56 samples in, saved by 2 ranks"));
  expect_same_characters(folder, "run", "whole");
}

INSTANTIATE_TEST_SUITE_P(
    Train, Resumed,
    ::testing::Values(Case{"dropout", "gpt2", {"--set", "zero_optimization.stage=3"}},
                      Case{"fp16",
                           "llama",
                           {"--set", "zero_optimization.stage=2", "--set", "fp16.enabled=true", "--set",
                            "fp16.initial_scale_power=24", "--set", "fp16.hysteresis=1"}},
                      Case{"bf16_recompute", "gpt2", {"--set", "bf16.enabled=true", "--recompute", "full"}}),
    [](const auto& info) { return info.param.name; });

TEST(Train, AnotherWorldSizeGoesOnWithTheSameBatches) {
  const RunFolder folder;
  const Result whole = train(folder, "llama", "whole", kSteps + Words{"--ranks", "2", "--no-final-save"});
  ASSERT_EQ(whole.exit_code, 0) << whole.out << whole.err;
  const Result first = train(folder, "llama", "run", kSteps + Words{"--ranks", "2", "--stop-at", "5"});
  ASSERT_EQ(first.exit_code, 0) << first.out << first.err;
  const Result one = train(folder, "llama", "run", kSteps + Words{"--resume", "auto", "--stop-at", "8"});
  ASSERT_EQ(one.exit_code, 0) << one.out << one.err;
  const Result four = train(folder, "llama", "run",
                            kSteps + Words{"--ranks", "4", "--resume", "auto", "--set", "zero_optimization.stage=1"});
  ASSERT_EQ(four.exit_code, 0) << four.out << four.err;
  const std::string metrics = folder.read("run/metrics.jsonl"), expected = folder.read("whole/metrics.jsonl");
  EXPECT_EQ(column(metrics, "tokens"), column(expected, "tokens"));
  const std::vector<double> losses = numbers(column(metrics, "loss")), want = numbers(column(expected, "loss"));
  ASSERT_EQ(losses.size(), want.size());
  // Other batches would differ by about 0.05 in their losses.
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], want[i], 1e-3) << "step " << i + 1;
}

TEST(Train, AnotherBatchIsSaid) {
  const RunFolder folder;
  const Result first = train(folder, "llama", "run", {"--steps", "3", "--ranks", "2", "--stop-at", "2"});
  ASSERT_EQ(first.exit_code, 0) << first.out << first.err;
  const Words same = {"--steps", "3", "--resume", "auto", "--no-final-save"};
  const Result kept = train(folder, "llama", "run", same);
  ASSERT_EQ(kept.exit_code, 0) << kept.out << kept.err;
  EXPECT_EQ(kept.out.find("samples a step, this run takes"), std::string::npos) << kept.out;
  const Result changed = train(folder, "llama", "run", same + Words{"--set", "train_batch_size=4"});
  ASSERT_EQ(changed.exit_code, 0) << changed.out << changed.err;
  EXPECT_THAT(changed.out, HasSubstr("it took 8 samples a step, this run takes 4: give train_batch_size"));
}

TEST(Train, AKilledRunGoesOnFromItsLastCheckpoint) {
  const RunFolder folder;
  const Words all = kSteps + Words{"--ranks", "2", "--save-every", "2"};
  const Result whole = train(folder, "gpt2", "whole", kSteps + Words{"--ranks", "2", "--no-final-save"});
  ASSERT_EQ(whole.exit_code, 0) << whole.out << whole.err;
  {
    Command killed(train_words(folder, "gpt2", "run", all));
    ASSERT_TRUE(killed.wait_for_output("step-00000004")) << killed.out() << killed.err();
    killed.kill(SIGKILL);
  }
  const Result resumed = train(folder, "gpt2", "run", all + Words{"--resume", "auto", "--keep-last", "2"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.out << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("resumed"));
  expect_same_characters(folder, "run", "whole");
  EXPECT_TRUE(std::filesystem::exists(folder / "run/checkpoints/step-00000012"));
  EXPECT_FALSE(std::filesystem::exists(folder / "run/checkpoints/step-00000004"));
}

TEST(Train, CtrlCEndsTheRunAfterItsStepAndACheckpointWhenAsked) {
  const RunFolder folder;
  const Words many = {"--steps", "100000", "--ranks", "2"};
  for (const bool save : {true, false}) {
    const std::string out = save ? "saved" : "not_saved";
    Command command(train_words(folder, "llama", out, many + (save ? Words{"--save-on-exit"} : Words{})));
    ASSERT_TRUE(command.wait_for_output("step 3/")) << command.out() << command.err();
    command.kill(SIGINT);
    const Result result = command.wait();
    EXPECT_EQ(result.exit_code, 128 + SIGINT) << result.out << result.err;
    const std::vector<std::string> steps = column(folder.read(out + "/metrics.jsonl"), "step");
    ASSERT_GE(steps.size(), 3u);
    std::string name = "step-" + std::string(8 - steps.back().size(), '0') + steps.back();
    EXPECT_EQ(std::filesystem::exists(folder / (out + "/checkpoints/" + name)), save) << name;
  }
}

TEST(Train, GoesOnWithTextFromItsCheckpoint) {
  const RunFolder folder;
  ASSERT_EQ(train(folder, "llama", "run", {"--steps", "2"}).exit_code, 0);
  const auto generate = [&](const std::string& seed, const std::string& temperature) {
    return Command({SHOAL_BINARY, "generate", "--checkpoint", folder / "run", "--prompt", "ab", "--tokens", "80",
                    "--seed", seed, "--temperature", temperature})
        .wait();
  };
  const Result first = generate("1", "1");
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(first.out.size(), 2u + 80u + 1u);
  EXPECT_EQ(first.out.substr(0, 2), "ab");
  EXPECT_EQ(generate("1", "1").out, first.out);
  EXPECT_NE(generate("2", "1").out, first.out);
  EXPECT_EQ(generate("1", "0").out, generate("2", "0").out);
}

}  // namespace
}  // namespace shoal::testing
