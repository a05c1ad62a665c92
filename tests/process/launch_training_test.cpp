// Real training of two ranks under each launcher: torchrun, mpirun, `shoal launch` and `shoal train --ranks`. The same
// losses everywhere, and no process left behind when a run is interrupted or a rank dies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "base/json.h"
#include "process/command.h"
#include "process/find_ranks.h"
#include "process/spawn.h"
#include "unit/launch/processes.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using testing::Command;
using testing::eventually;
using ::testing::HasSubstr;
using testing::Result;
using Words = std::vector<std::string>;

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// A folder whose name stands in the command line of every rank, by which they are found.
class RunFolder {
 public:
  RunFolder() : path_(fs::temp_directory_path() / ("shoal_launch_" + std::to_string(getpid()) + "_" + next())) {
    fs::create_directories(path_);
  }
  ~RunFolder() { fs::remove_all(path_); }
  std::string path() const { return path_.string(); }

  // The processes with this folder in their command line, and the rank in their environment if it is given.
  std::vector<pid_t> processes(std::optional<int> rank = {}) const { return testing::processes_of(path(), rank); }

  // "loss grad_norm" of each step, as metrics.jsonl gives them.
  std::vector<std::string> losses() const {
    std::vector<std::string> lines;
    std::ifstream file(path_ / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const json::Value step = json::parse(line, "metrics");
      lines.push_back(json::write(*step.find("loss")) + " " + json::write(*step.find("grad_norm")));
    }
    return lines;
  }

 private:
  static std::string next() {
    static int count = 0;
    return std::to_string(count++);
  }

  fs::path path_;
};

Words training(const RunFolder& folder, const std::string& steps) {
  return {
      SHOAL_BINARY, "train",       "--model",     "llama-tiny", "--data",         "synthetic",
      "--steps",    steps,         "--sequence",  "16",         "--set",          "train_micro_batch_size_per_gpu=1",
      "--out",      folder.path(), "--log-every", "1",          "--no-final-save"};
}

void expect_same_losses(const RunFolder& folder, const Words& command, std::vector<std::string>& expected,
                        const testing::CommandOptions& options = {}) {
  const Result result = Command(command, options).wait();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  const std::vector<std::string> losses = folder.losses();
  EXPECT_EQ(losses.size(), 3u) << result.out << result.err;
  if (expected.empty()) expected = losses;
  EXPECT_EQ(losses, expected);
  EXPECT_TRUE(eventually([&] { return folder.processes().empty(); }));
}

TEST(LaunchedTraining, GivesTheSameLossesUnderEveryLauncher) {
  std::vector<std::string> losses;
  {
    const RunFolder folder;
    expect_same_losses(folder, training(folder, "3") + Words{"--ranks", "2"}, losses);
  }
  {
    const RunFolder folder;
    expect_same_losses(folder, Words{SHOAL_BINARY, "launch", "-n", "2", "--"} + training(folder, "3"), losses);
  }
  {
    const RunFolder folder;
    const std::string torchrun = SHOAL_SOURCE_DIR "/.venv/bin/torchrun";
    ASSERT_EQ(access(torchrun.c_str(), X_OK), 0) << "no torchrun in .venv/bin";
    const Words launcher = {torchrun, "--no-python",   "--nproc-per-node",
                            "2",      "--master-port", std::to_string(testing::free_port())};
    expect_same_losses(folder, launcher + training(folder, "3"), losses);
  }
  {
    const RunFolder folder;
    const Words launcher = {"mpirun", "-n", "2", "--allow-run-as-root", "--oversubscribe"};
    expect_same_losses(folder, launcher + training(folder, "3"), losses,
                       {.env = {{"MASTER_PORT", std::to_string(testing::free_port())}}});
  }
}

// A run that goes on until it is told to end.
struct EndlessRun {
  RunFolder folder;
  Command command;

  explicit EndlessRun(const Words& more = {})
      : command(Words{SHOAL_BINARY, "launch", "-n", "2", "--"} + training(folder, "1000000") + more) {}
  // Once a line of metrics is there, both ranks are in the midst of it.
  bool is_training() const {
    return eventually(
        [&] {
          return fs::exists(folder.path() + "/metrics.jsonl") && fs::file_size(folder.path() + "/metrics.jsonl") > 0;
        },
        std::chrono::seconds(200));
  }
  bool is_gone() const {
    return eventually([&] { return folder.processes().empty(); });
  }
};

TEST(LaunchedTraining, CtrlCAndSigtermEndEveryRank) {
  for (const int signal : {SIGINT, SIGTERM}) {
    EndlessRun run;
    ASSERT_TRUE(run.is_training()) << run.command.out() << run.command.err();
    run.command.kill(signal);
    const Result result = run.command.wait();
    EXPECT_EQ(result.exit_code, 128 + signal) << result.out << result.err;
    EXPECT_TRUE(run.is_gone());
  }
}

TEST(LaunchedTraining, AKilledRankIsNamedAndTheOthersEndByThemselves) {
  EndlessRun run;
  ASSERT_TRUE(run.is_training()) << run.command.out() << run.command.err();
  const auto ranks = run.folder.processes(1);
  ASSERT_EQ(ranks.size(), 1u);
  kill(ranks[0], SIGKILL);
  const Result result = run.command.wait();
  EXPECT_EQ(result.exit_code, 137) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("shoal: rank 1 failed first, with signal 9 (Killed)."));
  // It notices that rank 1 died, unless the machine is so busy that the launcher loses patience.
  EXPECT_THAT(result.err, AnyOf(HasSubstr("shoal: rank 0 ended with exit code 1."),
                                HasSubstr("shoal: rank 0 ended with signal 15 (Terminated), sent by the launcher.")));
  EXPECT_TRUE(run.is_gone());
}

TEST(LaunchedTraining, NoRankOutlivesALauncherThatIsKilled) {
  EndlessRun run;
  ASSERT_TRUE(run.is_training()) << run.command.out() << run.command.err();
  EXPECT_EQ(run.folder.processes(0).size(), 1u);
  run.command.kill(SIGKILL);
  run.command.wait();
  EXPECT_TRUE(run.is_gone());
}

}  // namespace
}  // namespace shoal
