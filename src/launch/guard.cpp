// See guard.h. The guard reads words from a socket: +group to watch it, -group to forget it. Its end means that the
// launcher is gone. Who writes to a guard that was killed gets no SIGPIPE, as it would from a pipe.
#include "launch/guard.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "shoal/error.h"

namespace shoal::launch {

namespace {

[[noreturn]] void stand_guard(int fd) {
  setsid();  // a Ctrl-C at the terminal is not for us
  prctl(PR_SET_NAME, "shoal-guard");
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  // Nobody waits for the end of a pipe because of us.
  dup2(fd, 0);
  close_range(1, ~0U, 0);
  std::vector<pid_t> groups;
  pid_t word = 0;
  ssize_t got = 0;
  while ((got = read(0, &word, sizeof(word))) > 0 || (got < 0 && errno == EINTR)) {
    if (got != sizeof(word)) continue;
    if (word > 0) groups.push_back(word);
    if (word < 0) groups.erase(std::remove(groups.begin(), groups.end(), -word), groups.end());
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
  _exit(0);
}

}  // namespace

Guard::Guard() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0) pid_ = fork();
  if (pid_ < 0) {
    throw Error("launch",
                fmt::format("the guard process cannot be started: {}. End other processes.", strerror(errno)));
  }
  if (pid_ == 0) {
    close(ends[1]);
    stand_guard(ends[0]);
  }
  close(ends[0]);
  fd_ = ends[1];
}

Guard::~Guard() {
  close(fd_);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guard::watch(pid_t group) { tell(group); }
void Guard::forget(pid_t group) { tell(-group); }

void Guard::tell(pid_t word) const {
  while (send(fd_, &word, sizeof(word), MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

}  // namespace shoal::launch
