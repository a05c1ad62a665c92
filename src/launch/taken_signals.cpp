// See taken_signals.h. The handler writes the signal's number into a pipe.
#include "launch/taken_signals.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <vector>

#include "base/check.h"
#include "shoal/error.h"

namespace shoal::launch {

namespace {

// A handler sees nothing but what is static: where it notes a signal. -1: no TakenSignals is alive.
std::atomic<int> noted_fd{-1};

void write_number(int signal) {
  const int kept = errno;
  const auto number = static_cast<char>(signal);
  [[maybe_unused]] const ssize_t written = write(noted_fd.load(), &number, 1);
  errno = kept;
}

}  // namespace

TakenSignals::TakenSignals(bool usr1) {
  SHOAL_CHECK_EQ(noted_fd.load(), -1);
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    throw Error("launch",
                fmt::format("no pipe for signals: {}. Raise the limit of open files (ulimit -n).", strerror(errno)));
  }
  read_fd_ = ends[0];
  write_fd_ = ends[1];
  noted_fd = write_fd_;
  struct sigaction ours {};
  ours.sa_handler = write_number;
  ours.sa_flags = SA_RESTART;
  sigemptyset(&ours.sa_mask);
  std::vector<int> taken = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGCHLD};
  if (usr1) taken.push_back(SIGUSR1);
  for (const int signal : taken) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    const bool ignored = before.sa_handler == SIG_IGN && signal != SIGPIPE && signal != SIGCHLD;
    if (ignored) continue;  // as nohup wants it
    before_[signal] = before;
    sigaction(signal, &ours, nullptr);
  }
}

TakenSignals::~TakenSignals() {
  for (const auto& [signal, before] : before_) sigaction(signal, &before, nullptr);
  noted_fd = -1;
  close(read_fd_);
  close(write_fd_);
}

int TakenSignals::next() {
  char number = 0;
  return read(read_fd_, &number, 1) == 1 ? number : 0;
}

}  // namespace shoal::launch
