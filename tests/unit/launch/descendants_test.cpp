#include "launch/descendants.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "unit/launch/processes.h"

namespace shoal::launch {
namespace {

// Forks a child that forks a sleeper in a session of its own and ends; returns the sleeper.
pid_t orphan(bool ignores_terminate) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      setsid();
      if (ignores_terminate) signal(SIGTERM, SIG_IGN);
      const pid_t self = getpid();
      if (write(ends[1], &self, sizeof(self)) != sizeof(self)) _exit(1);
      for (;;) pause();
    }
    _exit(0);
  }
  pid_t grandchild = -1;
  const bool told = read(ends[0], &grandchild, sizeof(grandchild)) == sizeof(grandchild);
  close(ends[0]);
  close(ends[1]);
  waitpid(child, nullptr, 0);
  return told ? grandchild : -1;
}

TEST(Descendants, OrphansEndWhateverSessionTheyAreIn) {
  Descendants descendants;
  const pid_t meek = orphan(false);
  const pid_t stubborn = orphan(true);
  ASSERT_TRUE(testing::runs(meek));
  ASSERT_TRUE(testing::runs(stubborn));
  EXPECT_EQ(descendants.end_all(std::chrono::milliseconds(100)), 2);
  EXPECT_FALSE(testing::runs(meek));
  EXPECT_FALSE(testing::runs(stubborn));
  EXPECT_EQ(descendants.end_all(std::chrono::milliseconds(100)), 0);
}

TEST(Descendants, ChildrenFromBeforeAreLeftAlone) {
  const pid_t before = fork();
  if (before == 0) {
    for (;;) pause();
  }
  {
    Descendants descendants;
    EXPECT_EQ(descendants.end_all(std::chrono::milliseconds(0)), 0);
  }
  EXPECT_TRUE(testing::runs(before));
  kill(before, SIGKILL);
  waitpid(before, nullptr, 0);
}

}  // namespace
}  // namespace shoal::launch
