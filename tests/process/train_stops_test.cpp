// A run that is told to stop, by a signal or by the clock, saves and leaves, and the same command goes on: nothing of
// the run shows that it was stopped.
#include <gmock/gmock.h>
#include <signal.h>

#include "process/find_ranks.h"
#include "process/step_gate.h"
#include "process/train_run.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;

const Words kRun = {"--steps", "9", "--digest-every", "1", "--log", "csv", "--resume", "auto"};

size_t steps_of(const RunFolder& folder, const std::string& out) {
  const std::string path = folder / out + "/metrics.jsonl";
  return std::filesystem::exists(path) ? column(folder.read(out + "/metrics.jsonl"), "step").size() : 0;
}

// The run that was never stopped, made once.
const RunFolder& folder_with_whole() {
  static const RunFolder folder;
  static const Result whole = train(folder, "gpt2", "whole", kRun + Words{"--ranks", "2"});
  EXPECT_EQ(whole.exit_code, 0) << whole.out << whole.err;
  return folder;
}

// To the end by the same command; and what came of it is that run.
void expect_to_go_on(const RunFolder& folder, const Words& words) {
  const Result rest = train(folder, "gpt2", "run", words);
  EXPECT_EQ(rest.exit_code, 0) << rest.out << rest.err;
  std::filesystem::copy(folder_with_whole() / "whole", folder / "whole", std::filesystem::copy_options::recursive);
  expect_same_characters(folder, "run", "whole");
  EXPECT_EQ(folder.read("run/digests.jsonl"), folder.read("whole/digests.jsonl"));
}

struct Case {
  const char* name;
  int signal;
  Words words;
  size_t steps;  // that are taken when it has stopped
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class ToldToStop : public ::testing::TestWithParam<Case> {};

TEST_P(ToldToStop, SavesAndLeavesAndTheSameCommandGoesOn) {
  const auto& [name, signal, more, steps] = GetParam();
  const RunFolder folder;
  const Words words = kRun + Words{"--ranks", "2"} + more;
  {
    StepGate gate(folder / "run");
    Command command(train_words(folder, "gpt2", "run", words));
    ASSERT_TRUE(gate.pass(3)) << command.err();
    // The numbers of step 4 are written: the ranks have agreed to go on behind it.
    ASSERT_TRUE(eventually([&] { return steps_of(folder, "run") == 4; }));
    command.kill(signal);
    ASSERT_TRUE(eventually([&] { return command.err().find("passed on") != std::string::npos; })) << command.err();
    gate.open();
    const Result result = command.wait();
    EXPECT_EQ(result.exit_code, 128 + signal) << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr("by signal " + std::to_string(signal)));
  }
  EXPECT_EQ(steps_of(folder, "run"), steps);
  EXPECT_TRUE(std::filesystem::exists(folder / ("run/checkpoints/step-0000000" + std::to_string(steps))));
  expect_to_go_on(folder, words);
}

INSTANTIATE_TEST_SUITE_P(Train, ToldToStop,
                         ::testing::Values(Case{"sigterm", SIGTERM, {}, 5}, Case{"sigusr1", SIGUSR1, {}, 5},
                                           // Told before a save: it is the last thing that the run does.
                                           Case{"before_a_save", SIGTERM, {"--save-every", "4"}, 4}),
                         [](const auto& info) { return info.param.name; });

TEST(TrainStops, ARankThatIsToldToStopTellsTheOthers) {
  const RunFolder folder;
  const Words words = kRun + Words{"--ranks", "2", "--restarts", "3"};
  StepGate gate(folder / "run");
  Command command(train_words(folder, "gpt2", "run", words));
  ASSERT_TRUE(gate.pass(2)) << command.err();
  ASSERT_TRUE(eventually([&] { return steps_of(folder, "run") == 3; }));
  const std::vector<pid_t> ranks = processes_of(folder / "run", 0);
  ASSERT_EQ(ranks.size(), 1u);
  ::kill(ranks[0], SIGTERM);  // rank 0 waits at the gate: it has heard it when it goes on
  gate.open();
  const Result result = command.wait();
  EXPECT_EQ(result.exit_code, 143) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("was told to stop, by signal 15"));
  EXPECT_EQ(steps_of(folder, "run"), 4u);
  expect_to_go_on(folder, words);
}

TEST(TrainStops, BeforeTheFirstStepThereIsNothingToSave) {
  const RunFolder folder;
  const Words words = kRun + Words{"--ranks", "2"};
  {
    StepGate gate(folder / "run");  // no step ends before the signal
    Command command(train_words(folder, "gpt2", "run", words));
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder / "run/checkpoints"); }));
    command.kill(SIGTERM);
    ASSERT_TRUE(
        eventually([&] { return command.err().find("passed on") != std::string::npos || !runs(command.pid()); }));
    gate.open();
    const Result result = command.wait();
    EXPECT_TRUE(result.signal == SIGTERM || result.exit_code == 128 + SIGTERM) << result.exit_code << result.err;
  }
  expect_to_go_on(folder, words);
}

TEST(TrainStops, WhenTheTimeIsOverTheRunSavesAndSaysThatItIsUnfinished) {
  const RunFolder folder;
  const Words words = kRun + Words{"--ranks", "2"};
  for (size_t step = 1; step <= 2; ++step) {
    const Result part = train(folder, "gpt2", "run", words + Words{"--max-hours", "1e-9"});
    EXPECT_EQ(part.exit_code, 75) << part.out << part.err;
    EXPECT_EQ(part.err.find("failed"), std::string::npos) << part.err;
    EXPECT_THAT(part.out, HasSubstr("since the time of --max-hours is over"));
    EXPECT_EQ(steps_of(folder, "run"), step);
  }
  expect_to_go_on(folder, words + Words{"--max-hours", "100"});
  // Without a place for checkpoints it would be lost.
  const Result lost = Command({shoal_command(), "train", "--model", folder / "gpt2", "--data", "synthetic", "--steps",
                               "1", "--max-hours", "1"})
                          .wait();
  EXPECT_EQ(lost.exit_code, 2);
  EXPECT_THAT(lost.err, HasSubstr("--out"));
}

}  // namespace
}  // namespace shoal::testing
