#include "launch/rank_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shoal/error.h"

namespace shoal::launch {
namespace {

std::string read_to_end(int fd) {
  std::string text;
  char buffer[256];
  for (;;) {
    pollfd awaited{fd, POLLIN, 0};
    poll(&awaited, 1, -1);
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  close(fd);
  return text;
}

TEST(RankProcess, GetsItsWordsItsEnvironmentAndNoInput) {
  const RankProcess process =
      start_rank_process({.command = {"sh", "-c", "cat; echo \"$0 $NAME\"; echo wrong >&2; exit 3", "a b"},
                          .environment = {"NAME=value"}});
  EXPECT_EQ(read_to_end(process.out_fd), "a b value\n");
  EXPECT_EQ(read_to_end(process.err_fd), "wrong\n");
  int status = 0;
  ASSERT_EQ(waitpid(process.pid, &status, 0), process.pid);
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

TEST(RankProcess, LeadsAGroupOfItsOwn) {
  const RankProcess process = start_rank_process({.command = {"sleep", "1000"}, .environment = {}});
  EXPECT_EQ(getpgid(process.pid), process.pid);
  kill(-process.pid, SIGKILL);
  EXPECT_EQ(read_to_end(process.out_fd), "");
  close(process.err_fd);
  waitpid(process.pid, nullptr, 0);
}

TEST(RankProcess, SaysWhyAProgramCannotBeStarted) {
  try {
    start_rank_process({.command = {"/no/such/program"}, .environment = {}});
    FAIL() << "it started";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[launch] /no/such/program cannot be started: No such file or directory. Give a program that exists "
                 "and may be executed.");
  }
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a process is left";
}

}  // namespace
}  // namespace shoal::launch
