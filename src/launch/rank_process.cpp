// See rank_process.h.
#include "launch/rank_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "shoal/error.h"

namespace shoal::launch {

namespace {

struct Pipe {
  int read = -1;
  int write = -1;

  void open() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw Error("launch", fmt::format("no pipe for a rank's output: {}. Raise the limit of open files (ulimit -n).",
                                        strerror(errno)));
    }
    read = ends[0];
    write = ends[1];
  }
  static void shut(int& fd) {
    if (fd >= 0) close(fd);
    fd = -1;
  }
  ~Pipe() {
    shut(read);
    shut(write);
  }
};

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> found;
  for (const std::string& word : words) found.push_back(const_cast<char*>(word.c_str()));
  found.push_back(nullptr);
  return found;
}

// Every signal to its default, unless it is ignored, as nohup wants it.
void unblock_signals() {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = SIG_DFL;
    sigaction(signal, &action, nullptr);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace

RankProcess start_rank_process(const ProcessOptions& options) {
  Pipe out, err, failure;
  if (!options.keeps_stdout) out.open();
  err.open();
  failure.open();
  // Everything that allocates happens before the fork.
  const std::vector<char*> argv = pointers(options.command);
  const std::vector<char*> envp = pointers(options.environment);
  const pid_t parent = getpid();
  // Until its handlers are gone the new process must not run them: they belong to us.
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  const pid_t pid = fork();
  if (pid != 0) sigprocmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) {
    throw Error("launch", fmt::format("cannot fork: {}. Start fewer ranks or end other processes.", strerror(errno)));
  }
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);  // we died before the line above
    setpgid(0, 0);
    const int nothing = options.keeps_stdin ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    if (out.write >= 0) dup2(out.write, STDOUT_FILENO);
    dup2(err.write, STDERR_FILENO);
    unblock_signals();
    execvpe(argv[0], argv.data(), envp.data());
    const int reason = errno;
    [[maybe_unused]] const ssize_t written = write(failure.write, &reason, sizeof(reason));
    _exit(127);
  }
  setpgid(pid, pid);  // here too, so that it holds whoever comes first
  Pipe::shut(failure.write);
  int reason = 0;
  ssize_t got = 0;
  while ((got = read(failure.read, &reason, sizeof(reason))) < 0 && errno == EINTR) {
  }
  if (got == sizeof(reason)) {
    waitpid(pid, nullptr, 0);
    throw Error("launch", fmt::format("{} cannot be started: {}. Give a program that exists and may be executed.",
                                      options.command.front(), strerror(reason)));
  }
  RankProcess process{.pid = pid, .out_fd = out.read, .err_fd = err.read};
  out.read = err.read = -1;
  for (const int fd : {process.out_fd, process.err_fd}) {
    if (fd >= 0) fcntl(fd, F_SETFL, O_NONBLOCK);
  }
  return process;
}

}  // namespace shoal::launch
