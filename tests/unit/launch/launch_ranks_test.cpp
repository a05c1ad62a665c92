// Ranks are shell programs here; real training under the launcher is tested in tests/process/launch_*_test.cpp.
#include "launch/launch_ranks.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "shoal/error.h"
#include "unit/launch/processes.h"

namespace shoal::launch {
namespace {

using std::chrono::milliseconds;
using ::testing::EndsWith;
using testing::eventually;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::runs;

// A file in memory that a launch prints into.
class Sink {
 public:
  Sink() : fd_(memfd_create("sink", MFD_CLOEXEC)) {}
  ~Sink() { close(fd_); }
  int fd() const { return fd_; }
  std::string text() const {
    std::string text;
    char buffer[4096];
    for (ssize_t got = 0; (got = pread(fd_, buffer, sizeof(buffer), static_cast<off_t>(text.size()))) > 0;) {
      text.append(buffer, static_cast<size_t>(got));
    }
    return text;
  }

 private:
  int fd_;
};

struct Trial {
  Sink out, err;
  LaunchOptions options;

  Trial(int ranks, const std::string& script) {
    options.command = {"sh", "-c", script};
    options.ranks = ranks;
    options.out_fd = out.fd();
    options.err_fd = err.fd();
  }
  LaunchOutcome operator()() const { return launch_ranks(options); }

  // In a process of its own, so that it can be sent signals; its exit code is the launch's.
  pid_t in_background(int fd_to_close = -1) const {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    close(fd_to_close);
    _exit(launch_ranks(options).exit_code());
  }
  // The numbers that ranks printed behind a word: "pid 123".
  std::vector<pid_t> numbers_after(const std::string& word) const {
    std::vector<pid_t> found;
    const std::string text = out.text();
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
      const size_t end = text.find('\n', at);
      if (end != std::string::npos) found.push_back(std::stoi(text.substr(at + word.size(), end - at - word.size())));
    }
    return found;
  }
};

// A launcher that does not end is killed, so that the test fails instead of hanging.
int exit_code_of(pid_t pid) {
  int status = 0;
  if (!eventually([&] { return waitpid(pid, &status, WNOHANG) == pid; })) {
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(LaunchRanks, PrefixesEveryLineAndFlushesTheLast) {
  Trial run(2, "echo out $RANK of $WORLD_SIZE; echo err $LOCAL_RANK >&2; printf rest");
  const LaunchOutcome outcome = run();
  EXPECT_EQ(outcome.exit_code(), 0);
  EXPECT_EQ(outcome.ends.size(), 2u);
  for (const char* line : {"[rank 0] out 0 of 2\n", "[rank 1] out 1 of 2\n", "[rank 0] rest\n", "[rank 1] rest\n"}) {
    EXPECT_THAT(run.out.text(), HasSubstr(line));
  }
  EXPECT_THAT(run.err.text(), HasSubstr("[rank 1] err 1\n"));
}

TEST(LaunchRanks, LinesOfRanksThatPrintALotStayWhole) {
  Trial run(3,
            "i=0; while [ $i -lt 2000 ]; do echo $RANK aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa $RANK; "
            "i=$((i+1)); done");
  EXPECT_EQ(run().exit_code(), 0);
  const std::string text = run.out.text();
  size_t lines = 0;
  for (size_t at = 0; at < text.size(); ++lines) {
    const size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    const std::string rank = line.substr(6, 1);
    ASSERT_EQ(line, "[rank " + rank + "] " + rank + " " + std::string(48, 'a') + " " + rank);
    at = end + 1;
  }
  EXPECT_EQ(lines, 6000u);
}

TEST(LaunchRanks, WithoutPrefixLinesAreAsTheyWere) {
  Trial run(1, "echo plain");
  run.options.prefix = false;
  run();
  EXPECT_EQ(run.out.text(), "plain\n");
}

TEST(LaunchRanks, TheFirstFailingRankGivesTheCodeAndTheLastWords) {
  Trial run(3, "echo hello from $RANK; [ $RANK = 1 ] && { echo broken >&2; exit 7; }; sleep 1000");
  run.options.patience = milliseconds(100);
  const LaunchOutcome outcome = run();
  EXPECT_EQ(outcome.exit_code(), 7);
  EXPECT_THAT(run.err.text(), EndsWith("shoal: rank 1 failed first, with exit code 7. Its last lines:\n"
                                       "  | hello from 1\n"
                                       "  | broken\n"));
}

TEST(LaunchRanks, TheOthersMayEndByThemselvesAfterAFailure) {
  Trial run(2, "[ $RANK = 1 ] && exit 7; trap 'echo terminated; exit 9' TERM; sleep 0.5; echo peer failed; exit 1");
  run.options.patience = milliseconds(60000);
  EXPECT_EQ(run().exit_code(), 7);
  EXPECT_THAT(run.out.text(), HasSubstr("[rank 0] peer failed\n"));
  EXPECT_THAT(run.out.text(), Not(HasSubstr("terminated")));
}

TEST(LaunchRanks, ARankThatIgnoresSigtermIsKilledAfterAFailure) {
  Trial run(2, "[ $RANK = 1 ] && { sleep 0.3; exit 7; }; trap '' TERM; while true; do sleep 0.1; done");
  run.options.patience = milliseconds(100);
  run.options.terminate_grace = milliseconds(500);
  EXPECT_EQ(run().exit_code(), 7);
  EXPECT_THAT(run.err.text(), HasSubstr("rank 0 ended with signal 9 (Killed), sent by the launcher."));
}

TEST(LaunchRanks, ARankKilledBySomebodyIsNamedWithTheSignal) {
  Trial run(2, "echo ready; [ $RANK = 1 ] && kill -9 $$; sleep 1000");
  run.options.patience = milliseconds(100);
  EXPECT_EQ(run().exit_code(), 137);
  EXPECT_THAT(run.err.text(), HasSubstr("shoal: rank 1 failed first, with signal 9 (Killed). Its last lines:\n"));
}

TEST(LaunchRanks, CtrlCReachesEveryRankOnce) {
  Trial run(2, "trap 'echo saved $RANK; exit 0' INT; echo pid $$; while true; do sleep 0.05; done");
  const pid_t launcher = run.in_background();
  ASSERT_TRUE(eventually([&] { return run.numbers_after("pid ").size() == 2; })) << run.out.text();
  kill(launcher, SIGINT);
  EXPECT_EQ(exit_code_of(launcher), 130);
  EXPECT_THAT(run.out.text(), HasSubstr("[rank 0] saved 0\n"));
  EXPECT_THAT(run.out.text(), HasSubstr("[rank 1] saved 1\n"));
  for (const pid_t pid : run.numbers_after("pid ")) EXPECT_FALSE(runs(pid));
}

TEST(LaunchRanks, SigtermIsPassedOnAndASecondSignalKills) {
  Trial run(2, "trap 'echo asked $RANK' TERM; echo pid $$; while true; do sleep 0.05; done");
  const pid_t launcher = run.in_background();
  ASSERT_TRUE(eventually([&] { return run.numbers_after("pid ").size() == 2; })) << run.out.text();
  kill(launcher, SIGTERM);
  ASSERT_TRUE(eventually([&] { return run.numbers_after("asked ").size() == 2; })) << run.out.text();
  for (const pid_t pid : run.numbers_after("pid ")) EXPECT_TRUE(runs(pid));
  kill(launcher, SIGTERM);
  EXPECT_EQ(exit_code_of(launcher), 143);
  for (const pid_t pid : run.numbers_after("pid ")) EXPECT_FALSE(runs(pid));
}

TEST(LaunchRanks, RanksThatIgnoreCtrlCAreKilledAfterTheGrace) {
  Trial run(2, "trap '' INT TERM; echo pid $$; while true; do sleep 0.05; done");
  run.options.interrupt_grace = milliseconds(200);
  run.options.terminate_grace = milliseconds(200);
  const pid_t launcher = run.in_background();
  ASSERT_TRUE(eventually([&] { return run.numbers_after("pid ").size() == 2; })) << run.out.text();
  kill(launcher, SIGINT);
  EXPECT_EQ(exit_code_of(launcher), 130);
  for (const pid_t pid : run.numbers_after("pid ")) EXPECT_FALSE(runs(pid));
}

TEST(LaunchRanks, WhatARankLeftBehindEndsWithTheLaunch) {
  // One in the rank's group, one in a session of its own that ignores SIGTERM.
  Trial run(2, "sleep 1000 & echo pid $!; (trap '' TERM; exec setsid sleep 1000) & echo pid $!; sleep 0.3; exit 0");
  EXPECT_EQ(run().exit_code(), 0);
  ASSERT_EQ(run.numbers_after("pid ").size(), 4u);
  for (const pid_t pid : run.numbers_after("pid ")) EXPECT_FALSE(runs(pid)) << pid;
}

TEST(LaunchRanks, NothingOutlivesALauncherThatIsKilled) {
  Trial run(2, "sleep 1000 & echo pid $!; echo pid $$; wait");
  const pid_t launcher = run.in_background();
  ASSERT_TRUE(eventually([&] { return run.numbers_after("pid ").size() == 4; })) << run.out.text();
  kill(launcher, SIGKILL);
  EXPECT_EQ(exit_code_of(launcher), 137);
  for (const pid_t pid : run.numbers_after("pid ")) EXPECT_TRUE(eventually([&] { return !runs(pid); })) << pid;
}

TEST(LaunchRanks, ALauncherWhoseOutputNobodyReadsEndsItsRanks) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  Trial run(2, "while true; do echo line; sleep 0.05; done");
  run.options.out_fd = ends[1];
  const pid_t launcher = run.in_background(ends[0]);
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(exit_code_of(launcher), 128 + SIGPIPE);
}

TEST(LaunchRanks, AProgramThatCannotBeStartedIsAnErrorAndLeavesNothing) {
  Trial run(2, "");
  run.options.command = {"/no/such/program"};
  EXPECT_THROW(run(), Error);
  run.options.command = {};
  EXPECT_THROW(run(), Error);
  run.options.command = {"true"};
  run.options.ranks = 0;
  EXPECT_THROW(run(), Error);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a process is left";
}

TEST(LaunchRanks, RanksThatFailedAreStartedAgainWithWhatTheCallerSays) {
  Trial run(2, "echo first $MASTER_PORT; [ $RANK = 1 ] && exit 7; exit 0");
  std::vector<LaunchOutcome> failures;
  run.options.again = [&](const LaunchOutcome& outcome) -> std::optional<std::vector<std::string>> {
    failures.push_back(outcome);
    if (failures.size() == 3) return std::nullopt;
    return std::vector<std::string>{"sh", "-c", failures.size() == 1 ? "echo second; exit 5" : "echo third; exit 3"};
  };
  const LaunchOutcome outcome = run();
  EXPECT_EQ(outcome.exit_code(), 3);
  EXPECT_EQ(outcome.ends.size(), 2u);
  ASSERT_EQ(failures.size(), 3u);
  EXPECT_EQ(failures[0].cause()->rank, 1);
  EXPECT_EQ(failures[0].cause()->exit_code, 7);
  EXPECT_EQ(failures[1].exit_code(), 5);
  for (const char* line : {"[rank 1] second\n", "[rank 0] third\n"}) EXPECT_THAT(run.out.text(), HasSubstr(line));
  EXPECT_THAT(run.err.text(), HasSubstr("rank 1 failed first, with exit code 7."));
}

TEST(LaunchRanks, RanksThatEndedWellAreNotStartedAgain) {
  Trial run(2, "echo only");
  run.options.again = [&](const LaunchOutcome&) { return std::optional(run.options.command); };
  EXPECT_EQ(run().exit_code(), 0);
  EXPECT_EQ(run.out.text().size(), 2 * std::string("[rank 0] only\n").size());
}

TEST(LaunchRanks, ASignalBetweenTwoStartsEndsTheLaunch) {
  Trial run(2, "echo pid $$; exit 7");
  run.options.again = [&](const LaunchOutcome&) {
    raise(SIGTERM);
    return std::optional(run.options.command);
  };
  const LaunchOutcome outcome = run();
  EXPECT_EQ(outcome.exit_code(), 143);
  EXPECT_EQ(run.numbers_after("pid ").size(), 2u) << run.out.text();
}

TEST(LaunchRanks, RanksOfASecondStartHearSignalsToo) {
  Trial run(2, "exit 7");
  run.options.again = [&](const LaunchOutcome&) -> std::optional<std::vector<std::string>> {
    return std::vector<std::string>{"sh", "-c",
                                    "trap 'echo saved; exit 0' TERM; echo pid $$; while true; do sleep 0.05; done"};
  };
  const pid_t launcher = run.in_background();
  ASSERT_TRUE(eventually([&] { return run.numbers_after("pid ").size() == 2; })) << run.out.text();
  kill(launcher, SIGTERM);
  EXPECT_EQ(exit_code_of(launcher), 143);
  for (const pid_t pid : run.numbers_after("pid ")) EXPECT_FALSE(runs(pid));
}

TEST(LaunchRanks, Sigusr1IsPassedOnAndKillsNobody) {
  Trial run(2, "trap 'echo asked $RANK' USR1; trap 'exit 0' TERM; echo pid $$; while true; do sleep 0.05; done");
  run.options.usr1_stops = true;
  run.options.interrupt_grace = milliseconds(60000);
  const pid_t launcher = run.in_background();
  ASSERT_TRUE(eventually([&] { return run.numbers_after("pid ").size() == 2; })) << run.out.text();
  for (int i = 0; i < 3; ++i) kill(launcher, SIGUSR1);
  ASSERT_TRUE(eventually([&] { return run.numbers_after("asked ").size() == 2; })) << run.out.text();
  for (const pid_t pid : run.numbers_after("pid ")) EXPECT_TRUE(runs(pid));
  kill(launcher, SIGTERM);  // the first of its kind: they may end by themselves
  EXPECT_EQ(exit_code_of(launcher), 143);
  EXPECT_THAT(run.err.text(), Not(HasSubstr("Killed")));
}

TEST(LaunchRanks, UnfinishedRanksAreNeitherFailedNorStartedAgain) {
  Trial run(2, "echo once; exit 75");
  run.options.unfinished_code = 75;
  run.options.again = [&](const LaunchOutcome&) { return std::optional(run.options.command); };
  EXPECT_EQ(run().exit_code(), 75);
  EXPECT_EQ(run.err.text(), "");
  EXPECT_EQ(run.out.text().size(), 2 * std::string("[rank 0] once\n").size());
}

TEST(LaunchRanks, RanksGetTheThreadsThatWereAskedFor) {
  Trial run(1, "echo threads $OMP_NUM_THREADS $MORE");
  run.options.threads = 3;
  run.options.env = {{"MORE", "yes"}};
  run();
  EXPECT_EQ(run.out.text(), "[rank 0] threads 3 yes\n");
}

TEST(LaunchRanks, RanksThatShareAGpuAreHostsOfTheirOwnToNccl) {
  Trial run(2, "echo $NCCL_HOSTID $CUDA_VISIBLE_DEVICES $NCCL_SOCKET_IFNAME $MORE");
  run.options.share_gpu = true;
  run.options.env = {{"MORE", "yes"}, {"CUDA_VISIBLE_DEVICES", "7"}};
  run();
  EXPECT_THAT(run.out.text(), HasSubstr("[rank 0] shoal-rank-0 7 lo yes\n"));
  EXPECT_THAT(run.out.text(), HasSubstr("[rank 1] shoal-rank-1 7 lo yes\n"));
}

std::string complaint(const Trial& trial) {
  try {
    trial();
  } catch (const Error& error) {
    return error.what();
  }
  return "no complaint";
}

TEST(LaunchRanks, MoreRanksThanAHostTakesAreRefusedBeforeOneIsStarted) {
  for (const int ranks : {0, -1, kMostRanks + 1, 100000}) {
    EXPECT_EQ(complaint(Trial(ranks, "echo started")), "[launch] " + std::to_string(ranks) +
                                                           " ranks cannot be started on one host. Give a number from 1 "
                                                           "to 1024.");
  }
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{64, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const Trial many(100, "echo started");
  const std::string said = complaint(many);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(said,
            "[launch] 100 ranks need 232 open files, and 64 are allowed. Raise the limit (ulimit -n), or start fewer "
            "ranks.");
  EXPECT_EQ(many.out.text(), "");
}

}  // namespace
}  // namespace shoal::launch
