// With the batch and the micro-batch in the config, the number of ranks leaves no mark in a run: the same characters in
// its metrics and evaluations, the same digests, also where it changes in mid-run. And `shoal compare` says so.
#include <gmock/gmock.h>

#include "process/train_run.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;

Result compare(const RunFolder& folder, const std::string& first, const std::string& second, const Words& more = {}) {
  return Command(Words{shoal_command(), "compare", folder / first, folder / second} + more).wait();
}

// 6 leaves of one sample; 9 samples for validation, of which 5 micro-batches are evaluated: more than any number of
// ranks here divides.
const Words kSixLeaves = {"--steps",        "6",
                          "--set",          "train_batch_size=6",
                          "--set",          "train_micro_batch_size_per_gpu=1",
                          "--eval-every",   "2",
                          "--eval-batches", "5",
                          "--digest-every", "3"};

struct Case {
  const char* name;
  const char* model;
  Words words;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class EveryNumberOfRanks : public ::testing::TestWithParam<Case> {};

// One run at one rank; the other begins at three, goes on at two, and ends at six over Gloo.
TEST_P(EveryNumberOfRanks, WritesTheSameCharacters) {
  const auto& [name, model, words] = GetParam();
  const RunFolder folder;
  const Words all = kSixLeaves + words;
  const Result one = train(folder, model, "one", all + Words{"--no-final-save"});
  const Result three = train(folder, model, "more", all + Words{"--ranks", "3", "--stop-at", "2"});
  const Result two = train(folder, model, "more", all + Words{"--ranks", "2", "--resume", "auto", "--stop-at", "4"});
  const Result six =
      train(folder, model, "more",
            all + Words{"--ranks", "6", "--resume", "auto", "--no-final-save", "--set", "shoal.transport=gloo"});
  EXPECT_THAT(six.out, HasSubstr("over gloo"));
  for (const Result* result : {&one, &three, &two, &six}) {
    ASSERT_EQ(result->exit_code, 0) << result->out << result->err;
    EXPECT_THAT(result->out, HasSubstr("exactness  same bits at 1, 2, 3, 6 ranks\n"));
  }
  expect_same_characters(folder, "more", "one");
  for (const char* key : {"router_aux_loss", "busiest_experts", "idle_experts"}) {  // of a mixture
    EXPECT_EQ(column(folder.read("more/metrics.jsonl"), key), column(folder.read("one/metrics.jsonl"), key)) << key;
  }
  for (const char* key : {"step", "loss", "tokens"}) {
    EXPECT_EQ(column(folder.read("more/eval.jsonl"), key), column(folder.read("one/eval.jsonl"), key)) << key;
  }
  EXPECT_EQ(folder.read("more/digests.jsonl"), folder.read("one/digests.jsonl"));
  const Result compared = compare(folder, "one", "more");
  EXPECT_EQ(compared.exit_code, 0) << compared.out << compared.err;
  EXPECT_THAT(compared.out,
              HasSubstr("equal to the bit until step 6: loss, grad_norm, lr, loss_scale, skipped, tokens"));
  EXPECT_THAT(compared.out, HasSubstr("  ranks: 1 | 6\n"));
}

INSTANTIATE_TEST_SUITE_P(
    Train, EveryNumberOfRanks,
    ::testing::Values(
        Case{"dropout", "gpt2", {"--set", "zero_optimization.stage=3"}},
        Case{"bf16_recompute",
             "gpt2",
             {"--set", "zero_optimization.stage=2", "--set", "bf16.enabled=true", "--recompute", "full"}},
        Case{"mixture", "mixture", {"--set", "bf16.enabled=true", "--recompute", "selective"}},
        Case{"reproducible", "gpt2", {"--set", "zero_optimization.stage=1", "--set", "shoal.reproducible=true"}}),
    [](const auto& info) { return info.param.name; });

TEST(Compare, NamesTheFirstStepAndTheFirstParameter) {
  const RunFolder folder;
  const Words all = kSixLeaves + Words{"--no-final-save"};
  ASSERT_EQ(train(folder, "llama", "a", all).exit_code, 0);
  ASSERT_EQ(train(folder, "llama", "b", all + Words{"--set", "optimizer.params.weight_decay=0.5"}).exit_code, 0);
  const Result found = compare(folder, "a", "b");
  EXPECT_EQ(found.exit_code, 1) << found.out << found.err;
  EXPECT_THAT(found.out, HasSubstr("equal to the bit until step 1\nfirst difference: step 2, loss: "));
  EXPECT_THAT(found.out, HasSubstr("first digests that differ: after step 3, unit "));
  EXPECT_THAT(found.out, HasSubstr("optimizer.params.weight_decay"));
  const Result as_json = compare(folder, "a", "b", {"--json"});
  EXPECT_EQ(as_json.exit_code, 1);
  const json::Value value = json::parse(as_json.out, "json");
  EXPECT_EQ(value.find("equal_until")->as_integer(), 1);
  EXPECT_EQ(value.find("difference")->find("step")->as_integer(), 2);
}

TEST(Compare, WhatCannotBeComparedIsWrongUsage) {
  const RunFolder folder;
  folder.write("a.jsonl", "{\"step\": 1, \"loss\": 2.0}\n");
  const Result missing = compare(folder, "a.jsonl", "none");
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, HasSubstr("none] is not there, or is no file."));
  const Result same = compare(folder, "a.jsonl", "a.jsonl");
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
  const Result help = Command({shoal_command(), "compare", "--help"}).wait();
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("Example:\n  shoal compare "));
}

}  // namespace
}  // namespace shoal::testing
