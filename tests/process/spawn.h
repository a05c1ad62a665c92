// Ranks as real processes, for tests: runs this test program again, once a rank, in a mode of its own; most
// are forked from one process that has it loaded (nursery.h).
//
// A test file lists its modes and has its own main:
//
//   int train() { auto group = make_process_group(); ...; return 0; }        // runs in each rank's process
//   TEST(Run, Ends) {
//     Ranks ranks({.world = 3, .mode = "train", .env = {{"SHOAL_TRANSPORT", "gloo"}}});
//     ranks.wait_until_said(1, "ready");                                     // rank 1 did say("ready"), see said.h
//     ranks.kill(1);
//     for (const Outcome& outcome : ranks.wait()) EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
//   }
//   int main(int argc, char** argv) { return shoal::testing::rank_main(argc, argv, {{"train", train}}); }
//
// Each rank gets torchrun's environment (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT) and one thread of
// OpenMP. The modes begin when the processes of all ranks are up, so that no timeout counts how long a busy machine
// takes to load programs; Ranks that are made one after the other then wait side by side. A rank's stdout and stderr
// come back as `output`. A mode that throws prints the message and exits with 3; one whose EXPECTs fail exits with 1.
// Ranks still alive when a Ranks dies, or at its time limit, are killed.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "process/nursery.h"
#include "process/said.h"

namespace shoal::testing {

struct Outcome {
  int exit_code = -1;  // -1 when it ended by a signal
  int signal = 0;
  std::string output;
  double seconds = 0;  // from start to end
};

struct RanksOptions {
  int world = 2;
  std::string mode;
  std::map<std::string, std::string> env = {};
  std::vector<int> absent = {};  // ranks that are not started
  std::string host = "127.0.0.1";
  std::chrono::seconds limit{300};  // far beyond what a slow machine needs; ends a hang
  // Words before the command of a rank, as {"ip", "netns", "exec", "name"}.
  std::function<std::vector<std::string>(int rank)> prefix = {};
};

// A port that was free a moment ago, below those that the system gives to sockets that ask for none: between the look
// and the use, only another test could take it, and tests begin to look at places of their own.
inline int free_port() {
  constexpr int kLowest = 12000, kCount = 20000;
  static int looked = 0;
  for (int tries = 0; tries < kCount; ++tries) {
    const int port = kLowest + static_cast<int>((int64_t{getpid()} * 7919 + ++looked) % kCount);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    const bool is_free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    close(fd);
    if (is_free) return port;
  }
  throw std::runtime_error("no port is free");
}

class Ranks {
 public:
  explicit Ranks(const RanksOptions& options) : options_(options), started_(Clock::now()) {
    const std::string port = std::to_string(free_port());
    if (pipe2(up_, O_CLOEXEC) != 0 || pipe2(go_, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    for (int rank = 0; rank < options.world; ++rank) children_.push_back(start(rank, port));
    wait_until_up();
    for (const int fd : {up_[0], up_[1], go_[0], go_[1]}) close(fd);  // go's end is what the ranks wait for
  }
  ~Ranks() {
    for (Child& child : children_) {
      if (child.running) ::kill(child.pid, SIGKILL);
    }
    wait();
    for (Child& child : children_) close(child.output_fd);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void kill(int rank, int signal = SIGKILL) { ::kill(children_.at(static_cast<size_t>(rank)).pid, signal); }

  // Whether the rank says the line before it ends or the limit passes.
  bool wait_until_said(int rank, const std::string& line) {
    Child& child = children_.at(static_cast<size_t>(rank));
    const auto is_said = [&] {
      const std::vector<std::string> lines = lines_said(output_of(child));
      return std::find(lines.begin(), lines.end(), line) != lines.end();
    };
    while (!is_said()) {
      reap(child);
      if (!child.running) return is_said();
      if (Clock::now() - started_ > options_.limit) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

  // Whether any rank's output contains the text before all end or the limit passes.
  bool wait_for_output_of_any(const std::string& text) {
    for (bool running = true; running;) {
      running = false;
      for (Child& child : children_) {
        reap(child);
        running = running || child.running;
        if (output_of(child).find(text) != std::string::npos) return true;
      }
      if (Clock::now() - started_ > options_.limit) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  // Waits until the rank ends by itself or the limit passes.
  void wait_for_end(int rank) {
    Child& child = children_.at(static_cast<size_t>(rank));
    for (reap(child); child.running && Clock::now() - started_ <= options_.limit; reap(child)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  // Waits for all; those that outlive the limit are killed, and then have signal SIGKILL.
  std::vector<Outcome> wait() {
    std::vector<Outcome> outcomes;
    for (Child& child : children_) {
      while (child.running) {
        reap(child);
        if (child.running && Clock::now() - started_ > options_.limit) ::kill(child.pid, SIGKILL);
        if (child.running) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      child.outcome.output = output_of(child);
      outcomes.push_back(child.outcome);
    }
    return outcomes;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Child {
    pid_t pid = -1;
    int output_fd = -1;
    bool running = false;
    Outcome outcome;
  };

  Child start(int rank, const std::string& port) {
    Child child;
    child.output_fd = memfd_create("output", MFD_CLOEXEC);
    for (const int absent : options_.absent) {
      if (absent == rank) return child;
    }
    std::map<std::string, std::string> env = options_.env;
    env.insert({{"RANK", std::to_string(rank)},
                {"WORLD_SIZE", std::to_string(options_.world)},
                {"LOCAL_RANK", std::to_string(rank)},
                {"MASTER_ADDR", options_.host},
                {"MASTER_PORT", port},
                {"OMP_NUM_THREADS", "1"},
                {"TORCH_CPP_LOG_LEVEL", "ERROR"},
                {"TEST_UP_FD", std::to_string(up_[1])},
                {"TEST_GO_FD", std::to_string(go_[0])}});
    std::vector<std::string> words = options_.prefix ? options_.prefix(rank) : std::vector<std::string>{};
    char self[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    words.emplace_back(self, static_cast<size_t>(length));
    words.emplace_back("--rank-mode=" + options_.mode);
    // Everything that allocates happens before the fork: the parent may have threads.
    std::vector<std::string> settings;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string name(*entry, std::strcspn(*entry, "="));
      if (env.count(name) == 0) settings.emplace_back(*entry);
    }
    for (const auto& [name, value] : env) settings.push_back(name + "=" + value);
    if (can_be_forked() && Nursery::own().works()) {
      child.pid = Nursery::own().start({options_.mode, settings, {child.output_fd, up_[1], go_[0]}});
      child.running = child.pid > 0;
      if (child.running) return child;
    }
    std::vector<char*> argv, envp;
    for (std::string& word : words) argv.push_back(word.data());
    for (std::string& setting : settings) envp.push_back(setting.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    child.pid = fork();
    if (child.pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      fcntl(up_[1], F_SETFD, 0);
      fcntl(go_[0], F_SETFD, 0);
      dup2(child.output_fd, STDOUT_FILENO);
      dup2(child.output_fd, STDERR_FILENO);
      execvpe(argv[0], argv.data(), envp.data());
      _exit(127);
    }
    child.running = child.pid > 0;
    return child;
  }

  // Whether a rank is the same when it is not loaded anew: our own variables are read when they are used, others (the
  // loader's, OpenMP's, a BLAS's) may be read when a library is loaded.
  bool can_be_forked() const {
    if (options_.prefix) return false;
    return std::all_of(options_.env.begin(), options_.env.end(), [](const auto& setting) {
      return setting.first.rfind("TEST_", 0) == 0 || setting.first.rfind("SHOAL_", 0) == 0;
    });
  }

  // Until every process has said that it is up, one has ended, or the limit passes.
  void wait_until_up() {
    fcntl(up_[0], F_SETFL, O_NONBLOCK);
    const auto running = [](const Child& child) { return child.running; };
    const auto started = std::count_if(children_.begin(), children_.end(), running);
    for (ssize_t up = 0; up < started && Clock::now() - started_ <= options_.limit;) {
      char byte = 0;
      if (read(up_[0], &byte, 1) == 1) {
        ++up;
        continue;
      }
      for (Child& child : children_) reap(child);
      if (std::count_if(children_.begin(), children_.end(), running) < started) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  void reap(Child& child) {
    int status = 0;
    if (!child.running || waitpid(child.pid, &status, WNOHANG) != child.pid) return;
    child.running = false;
    child.outcome.seconds = std::chrono::duration<double>(Clock::now() - started_).count();
    if (WIFEXITED(status)) child.outcome.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) child.outcome.signal = WTERMSIG(status);
  }

  static std::string output_of(const Child& child) {
    std::string text;
    char buffer[4096];
    for (ssize_t n = 0; (n = pread(child.output_fd, buffer, sizeof(buffer), static_cast<off_t>(text.size()))) > 0;) {
      text.append(buffer, static_cast<size_t>(n));
    }
    return text;
  }

  RanksOptions options_;
  Clock::time_point started_;
  int up_[2] = {-1, -1}, go_[2] = {-1, -1};  // pipes: a byte from each rank that is up; the end, when all may begin
  std::vector<Child> children_;
};

// In a rank's process: says that it is up, and waits for the others.
inline void begin_together() {
  const char* up = std::getenv("TEST_UP_FD");
  const char* go = std::getenv("TEST_GO_FD");
  if (up == nullptr || go == nullptr) return;  // another launcher started it
  const int up_fd = std::stoi(up), go_fd = std::stoi(go);
  char byte = 0;
  if (write(up_fd, &byte, 1) != 1) std::perror("the pipe of the test");
  close(up_fd);
  while (read(go_fd, &byte, 1) < 0 && errno == EINTR) {
  }
  close(go_fd);
  unsetenv("TEST_UP_FD");  // not for processes that this one starts
  unsetenv("TEST_GO_FD");
}

// The main of a process test: runs the tests, or a rank's mode when it was started for one.
inline int run_mode(const std::function<int()>& mode) {
  try {
    const int code = mode();
    if (code != 0) return code;
    return ::testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}

inline int rank_main(int argc, char** argv, const std::map<std::string, std::function<int()>>& modes) {
  ::testing::InitGoogleTest(&argc, argv);
  const std::string flag = "--rank-mode=", nursery_flag = kNurseryFlag, word = argc < 2 ? "" : argv[1];
  const bool is_nursery = word.rfind(nursery_flag, 0) == 0;
  if (!is_nursery && word.rfind(flag, 0) != 0) return RUN_ALL_TESTS();
  const std::string name =
      is_nursery ? serve_ranks(std::stoi(word.substr(nursery_flag.size()))) : word.substr(flag.size());
  const auto mode = modes.find(name);
  if (mode == modes.end()) {
    std::fprintf(stderr, "no mode %s\n", name.c_str());
    return 127;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  begin_together();
  const int code = run_mode(mode->second);
  if (is_nursery) code_of_fork = code;
  return code;
}

}  // namespace shoal::testing
