#include "launch/guard.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "unit/launch/processes.h"

namespace shoal::launch {
namespace {

// A process in a group of its own that does nothing for a long time.
pid_t sleeper() {
  const pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);
    execlp("sleep", "sleep", "1000", nullptr);
    _exit(127);
  }
  setpgid(pid, pid);
  return pid;
}

int signal_that_ended(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST(Guard, KillsTheGroupsItStillWatchesWhenItsOwnerIsGone) {
  const pid_t watched = sleeper();
  const pid_t forgotten = sleeper();
  const pid_t owner = fork();
  if (owner == 0) {
    Guard guard;
    guard.watch(watched);
    guard.watch(forgotten);
    guard.forget(forgotten);
    kill(getpid(), SIGKILL);
  }
  EXPECT_EQ(signal_that_ended(owner), SIGKILL);
  EXPECT_EQ(signal_that_ended(watched), SIGKILL);
  EXPECT_TRUE(testing::runs(forgotten));
  kill(forgotten, SIGTERM);
  EXPECT_EQ(signal_that_ended(forgotten), SIGTERM);
}

// Not even by SIGPIPE, which a launch takes for a reason to end.
TEST(Guard, ThatWasKilledTakesNobodyAlong) {
  Guard guard;
  kill(guard.pid(), SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(guard.pid()), &info, WEXITED | WNOWAIT), 0);
  guard.watch(getpid());
  guard.forget(getpid());
}

TEST(Guard, EndsWithItsOwner) {
  pid_t pid = 0;
  {
    const Guard guard;
    pid = guard.pid();
    EXPECT_TRUE(testing::runs(pid));
  }
  EXPECT_FALSE(testing::runs(pid));
}

}  // namespace
}  // namespace shoal::launch
