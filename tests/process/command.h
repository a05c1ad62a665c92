// Runs a command as a user would, for tests of the command line: words in, exit code and output back.
//
//   const Result result = Command({SHOAL_BINARY, "plan", "--params", "7e9", "--world", "8"}).wait();
//   EXPECT_EQ(result.exit_code, 0) << result.err;
//
// A command that outlives its limit, or its Command, is killed.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace shoal::testing {

struct Result {
  int exit_code = -1;  // -1 when a signal ended it
  int signal = 0;
  std::string out, err;
};

struct CommandOptions {
  std::map<std::string, std::string> env = {};
  std::string folder = {};  // to run in
  std::chrono::seconds limit{300};
};

class Command {
 public:
  explicit Command(std::vector<std::string> words, const CommandOptions& options = {})
      : limit_(options.limit), started_(Clock::now()) {
    out_ = memfd_create("out", MFD_CLOEXEC);
    err_ = memfd_create("err", MFD_CLOEXEC);
    std::map<std::string, std::string> env = options.env;
    env.insert({{"OMP_NUM_THREADS", "1"}, {"TORCH_CPP_LOG_LEVEL", "ERROR"}});
    std::vector<std::string> settings;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      if (env.count(std::string(*entry, std::strcspn(*entry, "="))) == 0) settings.emplace_back(*entry);
    }
    for (const auto& [name, value] : env) settings.push_back(name + "=" + value);
    std::vector<char*> argv, envp;
    for (std::string& word : words) argv.push_back(word.data());
    for (std::string& setting : settings) envp.push_back(setting.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(out_, STDOUT_FILENO);
      dup2(err_, STDERR_FILENO);
      if (!options.folder.empty() && chdir(options.folder.c_str()) != 0) _exit(126);
      execvpe(argv[0], argv.data(), envp.data());
      _exit(127);
    }
  }
  ~Command() {
    if (running_) ::kill(pid_, SIGKILL);
    wait();
    close(out_);
    close(err_);
  }
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  pid_t pid() const { return pid_; }
  void kill(int signal) const { ::kill(pid_, signal); }
  std::string out() const { return text_of(out_); }
  std::string err() const { return text_of(err_); }

  // Whether the text came before the end or the limit.
  bool wait_for_output(const std::string& text) {
    while (out().find(text) == std::string::npos) {
      reap();
      if (!running_) return out().find(text) != std::string::npos;
      if (Clock::now() - started_ > limit_) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }

  Result wait() {
    while (running_) {
      reap();
      if (running_ && Clock::now() - started_ > limit_) ::kill(pid_, SIGKILL);
      if (running_) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    result_.out = out();
    result_.err = err();
    return result_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  void reap() {
    int status = 0;
    if (!running_ || waitpid(pid_, &status, WNOHANG) != pid_) return;
    running_ = false;
    if (WIFEXITED(status)) result_.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) result_.signal = WTERMSIG(status);
  }
  static std::string text_of(int fd) {
    std::string text;
    char buffer[4096];
    for (ssize_t got = 0; (got = pread(fd, buffer, sizeof(buffer), static_cast<off_t>(text.size()))) > 0;) {
      text.append(buffer, static_cast<size_t>(got));
    }
    return text;
  }

  std::chrono::seconds limit_;
  Clock::time_point started_;
  pid_t pid_ = -1;
  int out_ = -1, err_ = -1;
  bool running_ = true;
  Result result_;
};

}  // namespace shoal::testing
