// Two hosts that share a disk (see two_hosts.h) save together and go on together from what they saved, with the same
// characters in the metrics as a run that never stopped; one host alone goes on from it too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "process/spawn.h"
#include "process/train_run.h"
#include "process/two_hosts.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;

// The command of each rank travels in a variable, a word a line.
constexpr const char* kWords = "SHOAL_TEST_WORDS";

int become_the_command() {
  std::vector<std::string> words;
  std::stringstream lines(std::getenv(kWords));
  for (std::string line; std::getline(lines, line);) words.push_back(line);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  return 127;
}

std::vector<Outcome> train(const TwoHosts& hosts, const RunFolder& folder, const std::string& out, Words more) {
  more.insert(more.begin(), {"--steps", "4", "--set", "shoal.transport=gloo"});
  std::string lines;
  for (const std::string& word : train_words(folder, "gpt2", out, more)) lines += word + "\n";
  RanksOptions options;
  options.world = 2;
  options.mode = "command";
  options.host = TwoHosts::kFirstAddress;
  options.env = {{kWords, lines}};
  options.prefix = hosts.prefix({0, 1});
  return Ranks(options).wait();
}

void expect_done(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

TEST(CheckpointOnTwoHosts, GoesOnAsIfItHadNeverStopped) {
  TwoHosts hosts;
  if (const std::string why = hosts.connect(); !why.empty()) GTEST_SKIP() << why;
  const RunFolder folder;
  expect_done(train(hosts, folder, "whole", {"--no-final-save"}));
  expect_done(train(hosts, folder, "run", {"--stop-at", "2"}));
  EXPECT_THAT(names_of(folder / "run/checkpoints/step-00000002"),
              ::testing::ElementsAre("manifest.json", "rank-00000.bin", "rank-00001.bin"));
  const auto outcomes = train(hosts, folder, "run", {"--resume", "auto"});
  expect_done(outcomes);
  EXPECT_THAT(outcomes[0].output, HasSubstr("at step 2, 16 samples in, saved by 2 ranks"));
  const std::string metrics = folder.read("run/metrics.jsonl"), expected = folder.read("whole/metrics.jsonl");
  for (const char* key : {"step", "loss", "grad_norm"}) EXPECT_EQ(column(metrics, key), column(expected, key)) << key;

  const Result alone = Command(train_words(folder, "gpt2", "alone",
                                           {"--steps", "4", "--resume", folder / "run/checkpoints/step-00000002"}))
                           .wait();
  EXPECT_EQ(alone.exit_code, 0) << alone.out << alone.err;
  EXPECT_EQ(column(folder.read("alone/metrics.jsonl"), "step").size(), 2u);
}

}  // namespace

int run(int argc, char** argv) { return rank_main(argc, argv, {{"command", become_the_command}}); }

}  // namespace shoal::testing

int main(int argc, char** argv) { return shoal::testing::run(argc, argv); }
