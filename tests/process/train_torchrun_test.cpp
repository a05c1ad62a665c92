// `shoal train` under torchrun: with --max-restarts its ranks go on from the newest checkpoint by the words that they
// had.
#include <gmock/gmock.h>
#include <signal.h>

#include "process/find_ranks.h"
#include "process/spawn.h"
#include "process/step_gate.h"
#include "process/train_run.h"

namespace shoal::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// Eight leaves a step, at any number of ranks that divides them.
// Saves that are waited for: what a kill finds then is known.
const Words kRun = {"--steps",
                    "8",
                    "--save-every",
                    "2",
                    "--save-and-wait",
                    "--digest-every",
                    "1",
                    "--set",
                    "train_micro_batch_size_per_gpu=1"};

Words torchrun(const Words& flags, const Words& program) {
  return Words{SHOAL_SOURCE_DIR "/.venv/bin/torchrun", "--no-python"} + flags + program;
}

TEST(TrainUnderTorchrun, RanksThatAreStartedAgainGoOn) {
  const RunFolder folder;
  const Result whole = train(folder, "gpt2", "whole", kRun + Words{"--ranks", "2"});
  ASSERT_EQ(whole.exit_code, 0) << whole.out << whole.err;
  StepGate gate(folder / "run");
  Command command(
      torchrun({"--nproc-per-node", "2", "--max-restarts", "2", "--master-port", std::to_string(free_port())},
               train_words(folder, "gpt2", "run", kRun + Words{"--set", "csv_monitor.enabled=true"})));
  ASSERT_TRUE(gate.pass(5)) << command.out() << command.err();
  const std::vector<pid_t> ranks = processes_of(folder / "run", 1);
  ASSERT_EQ(ranks.size(), 1u);
  ::kill(ranks[0], SIGKILL);
  gate.open();
  const Result result = command.wait();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  expect_same_characters(folder, "run", "whole");
  EXPECT_EQ(folder.read("run/digests.jsonl"), folder.read("whole/digests.jsonl"));
  const std::string events = folder.read("run/events.jsonl");
  EXPECT_THAT(column(events, "event"), Contains("\"resume\""));
  EXPECT_THAT(events, HasSubstr("step-00000004"));
}

// Otherwise torchrun would start a run again that has stopped well.
TEST(TrainUnderTorchrun, ARunWhoseTimeIsOverHasNotFailed) {
  const RunFolder folder;
  const Result part = Command(torchrun({"--standalone", "--nproc-per-node", "1", "--max-restarts", "3"},
                                       train_words(folder, "gpt2", "run", kRun + Words{"--max-hours", "1e-9"})))
                          .wait();
  EXPECT_EQ(part.exit_code, 0) << part.out << part.err;
  EXPECT_EQ(column(folder.read("run/metrics.jsonl"), "step").size(), 1u);
}

}  // namespace
}  // namespace shoal::testing
