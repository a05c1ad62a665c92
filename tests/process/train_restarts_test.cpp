// `shoal train --restarts`: ranks that die are started again from the newest checkpoint, and nothing of the run shows
// that they died: neither its numbers, to the character, nor its weights, by their digests.
#include <gmock/gmock.h>
#include <signal.h>

#include "process/find_ranks.h"
#include "process/step_gate.h"
#include "process/train_run.h"

namespace shoal::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Saves that are waited for: what a kill finds then is known.
const Words kRun = {"--steps", "8", "--save-every", "2", "--save-and-wait", "--digest-every", "1", "--log", "csv"};

void expect_the_same_run(const RunFolder& folder, const std::string& run, const std::string& whole) {
  expect_same_characters(folder, run, whole);
  EXPECT_EQ(column(folder.read(run + "/metrics.jsonl"), "digest"),
            column(folder.read(whole + "/metrics.jsonl"), "digest"));
  EXPECT_EQ(folder.read(run + "/digests.jsonl"), folder.read(whole + "/digests.jsonl"));
}

std::vector<std::string> rows(const std::string& text) {
  std::vector<std::string> found;
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) found.push_back(line.substr(0, line.find(',')));
  return found;
}

// Kills that rank of the run, once it has taken `steps`.
void kill_rank(const RunFolder& folder, const std::string& out, StepGate& gate, int rank, int steps) {
  ASSERT_TRUE(gate.pass(steps));
  const std::vector<pid_t> ranks = processes_of(folder / out, rank);
  ASSERT_EQ(ranks.size(), 1u);
  ::kill(ranks[0], SIGKILL);
  gate.open();
}

class KilledRank : public ::testing::TestWithParam<int> {};

TEST_P(KilledRank, CostsTheRunNothing) {
  const int victim = GetParam();
  const RunFolder folder;
  const Result whole = train(folder, "gpt2", "whole", kRun + Words{"--ranks", "2"});
  ASSERT_EQ(whole.exit_code, 0) << whole.out << whole.err;
  StepGate gate(folder / "run");
  Command command(train_words(folder, "gpt2", "run", kRun + Words{"--ranks", "2", "--restarts", "3"}));
  kill_rank(folder, "run", gate, victim, 5);
  const Result result = command.wait();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  const std::string from = "checkpoints/step-00000004";
  EXPECT_THAT(result.err, HasSubstr("started again from " + folder / "run" + "/" + from + ": restart 1 of 3."));
  EXPECT_THAT(result.err, HasSubstr("signal 9 (Killed)"));
  expect_the_same_run(folder, "run", "whole");
  const std::string events = folder.read("run/events.jsonl");
  // Rank 0, when it is not the one, may have said that it failed.
  std::vector<std::string> happened = column(events, "event");
  std::erase(happened, "\"failed\"");
  EXPECT_THAT(happened, ElementsAre("\"start\"", "\"save\"", "\"save\"", "\"restart\"", "\"resume\"", "\"save\"",
                                    "\"save\"", "\"memory\"", "\"end\""));
  EXPECT_THAT(events, HasSubstr("rank " + std::to_string(victim) + " ended with signal 9 (Killed)"));
  EXPECT_TRUE(processes_of(folder / "run").empty());
}

INSTANTIATE_TEST_SUITE_P(Train, KilledRank, ::testing::Values(0, 1));

// Saves behind training, as they are by default: a kill finds the one of step 4 complete or not.
TEST(TrainRestarts, GoOnFromTheLastSaveBehindTrainingThatIsComplete) {
  const RunFolder folder;
  const Words words = {"--steps", "8", "--save-every", "2", "--digest-every", "1", "--log", "csv", "--ranks", "2"};
  const Result whole = train(folder, "gpt2", "whole", words);
  ASSERT_EQ(whole.exit_code, 0) << whole.out << whole.err;
  StepGate gate(folder / "run");
  Command command(train_words(folder, "gpt2", "run", words + Words{"--restarts", "1"}));
  ASSERT_NO_FATAL_FAILURE(kill_rank(folder, "run", gate, 1, 5));
  const Result result = command.wait();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.err,
              ::testing::ContainsRegex("started again from .*checkpoints/step-0000000[24]: restart 1 of 1."));
  expect_the_same_run(folder, "run", "whole");
  EXPECT_EQ(folder.read("run/checkpoints/latest"), "step-00000008\n");
}

TEST(TrainRestarts, BeforeACheckpointTheRunBeginsAgain) {
  const RunFolder folder;
  const Words words = {"--steps", "4", "--digest-every", "1", "--log", "csv"};
  const Result whole = train(folder, "gpt2", "whole", words);
  ASSERT_EQ(whole.exit_code, 0) << whole.out << whole.err;
  StepGate gate(folder / "run");
  Command command(train_words(folder, "gpt2", "run", words + Words{"--restarts", "1"}));  // one rank
  kill_rank(folder, "run", gate, 0, 2);
  const Result result = command.wait();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("started again from the beginning, since no checkpoint is complete: restart 1 of 1."));
  expect_the_same_run(folder, "run", "whole");
  for (const char* name : {"run/csv/Train_Samples_grad_norm.csv", "whole/csv/Train_Samples_grad_norm.csv"}) {
    EXPECT_THAT(rows(folder.read(name)), ElementsAre("step", "8", "16", "24", "32")) << name;
  }
}

TEST(TrainRestarts, AFailureThatComesAgainAtTheSameStepEndsTheRun) {
  const RunFolder folder;
  Words words = train_words(folder, "llama", "run", {"--ranks", "2", "--steps", "100", "--max-nonfinite", "3"});
  std::replace(words.begin(), words.end(), std::string("0.01"), std::string("1e30"));
  const Result result = Command(words + Words{"--restarts", "50"}).wait();
  EXPECT_EQ(result.exit_code, 1) << result.out;
  EXPECT_THAT(result.err, HasSubstr("restart 2 of 50."));
  EXPECT_THAT(result.err, Not(HasSubstr("restart 3 of 50.")));
  EXPECT_THAT(result.err, HasSubstr("3 times in a row they failed after step 4 with exit code 1."));
}

TEST(TrainRestarts, ThatAreUsedUpEndTheRunWithTheLastFailure) {
  const RunFolder folder;
  std::filesystem::create_directories(folder / "run/metrics.jsonl");  // no run can write its numbers there
  const Result result = train(folder, "llama", "run", kRun + Words{"--resume", "auto", "--restarts", "1"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("restart 1 of 1."));
  EXPECT_THAT(result.err, HasSubstr("1 of 1 restarts are used."));
}

// A run that was told to begin further back does not go on from what was saved before it.
TEST(TrainRestarts, GoOnFromCheckpointsOfThisStartOnly) {
  const RunFolder folder;
  const Result whole = train(folder, "gpt2", "run", kRun);
  ASSERT_EQ(whole.exit_code, 0) << whole.out << whole.err;
  const std::string back = folder / "run/checkpoints/step-00000002";
  std::filesystem::remove_all(folder / "run/csv");
  std::filesystem::copy(folder / "run", folder / "whole", std::filesystem::copy_options::recursive);
  StepGate gate(folder / "run");
  Command command(train_words(folder, "gpt2", "run", kRun + Words{"--restarts", "1", "--resume", back}));
  ASSERT_NO_FATAL_FAILURE(kill_rank(folder, "run", gate, 0, 1));
  const Result result = command.wait();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("started again from " + back + ": restart 1 of 1."));
  expect_the_same_run(folder, "run", "whole");
}

TEST(TrainRestarts, AreRefusedWhereTheyCannotBe) {
  const RunFolder folder;
  const Words words = {shoal_command(), "train",   "--model", folder / "llama", "--data",
                       "synthetic",     "--steps", "1",       "--restarts",     "2"};
  const Result no_folder = Command(words).wait();
  EXPECT_EQ(no_folder.exit_code, 2);
  EXPECT_THAT(no_folder.err, HasSubstr("[--restarts] needs the run's folder"));
  const Result launched =
      Command(Words{shoal_command(), "launch", "-n", "1", "--"} + words + Words{"--out", folder / "run"}).wait();
  EXPECT_EQ(launched.exit_code, 2);
  EXPECT_THAT(launched.err, HasSubstr("[--restarts] is for ranks that this command starts"));
}

}  // namespace
}  // namespace shoal::testing
