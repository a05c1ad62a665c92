// See launch_ranks.h. One thread, one poll loop: output of the ranks, signals to us, and the clock.
#include "launch/launch_ranks.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <optional>
#include <string_view>
#include <thread>

#include "launch/descendants.h"
#include "launch/guard.h"
#include "launch/held_port.h"
#include "launch/line_cutter.h"
#include "launch/rank_environment.h"
#include "launch/rank_process.h"
#include "launch/shared_gpu.h"
#include "launch/taken_signals.h"
#include "shoal/error.h"

namespace shoal::launch {

namespace {

using Clock = std::chrono::steady_clock;

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return;  // nobody reads it; SIGPIPE says so to the loop
    text.remove_prefix(static_cast<size_t>(written));
  }
}

struct Stream {
  int from = -1;  // -1: at its end
  int to = -1;
  LineCutter cutter;
};

struct Rank {
  int rank = 0;
  pid_t pid = -1;
  bool running = true;
  bool signalled = false;  // we sent it SIGTERM or SIGKILL on our own
  std::string prefix;
  std::array<Stream, 2> streams;
  LastLines last_lines;
};

// Each rank's output comes through two pipes, which stay open.
void check_open_files(int ranks) {
  constexpr rlim_t kOthers = 32;
  const rlim_t needed = 2 * static_cast<rlim_t>(ranks) + kOthers;
  rlimit allowed{};
  if (getrlimit(RLIMIT_NOFILE, &allowed) != 0 || allowed.rlim_cur >= needed) return;
  throw Error("launch", fmt::format("{} ranks need {} open files, and {} are allowed. Raise the limit (ulimit -n), or "
                                    "start fewer ranks.",
                                    ranks, needed, allowed.rlim_cur));
}

class Launch {
 public:
  explicit Launch(const LaunchOptions& options)
      : options_(options), command_(options.command), signals_(options.usr1_stops) {
    descendants_.spare(guard_.pid());
  }
  ~Launch() {
    for (Rank& rank : ranks_) {
      if (rank.running) signal_rank(rank, SIGKILL);
    }
    while (running() > 0) reap(WEXITED);
    descendants_.end_all(std::chrono::milliseconds(0));
    for (Rank& rank : ranks_) {
      for (Stream& stream : rank.streams) shut(rank, stream);
    }
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  LaunchOutcome see_through() {
    for (;;) {
      see_ranks_through();
      write_all(options_.err_fd, closing_text(outcome_));
      take_signals();  // one that came when the last rank had ended
      if (outcome_.interrupted != 0 || !outcome_.failed() || !options_.again) return outcome_;
      std::optional<std::vector<std::string>> next = options_.again(outcome_);
      if (!next) return outcome_;
      command_ = std::move(*next);
      ranks_.clear();
      outcome_ = {};
      terminate_at_.reset();
      kill_at_.reset();
      take_signals();
      if (outcome_.interrupted != 0) return outcome_;
    }
  }

 private:
  void see_ranks_through() {
    port_.emplace();  // another one for each start: nothing of the one before can be taken for a rank of this one
    // Ranks in groups of their own may not read from a terminal.
    const bool readable = isatty(STDIN_FILENO) == 0;
    for (int rank = 0; rank < options_.ranks; ++rank) start(rank, readable && rank == 0);
    while (running() > 0) {
      wait_for_news();
      take_signals();
      read_output();
      reap(WEXITED | WNOHANG);
      escalate();
    }
    // What the ranks started themselves ends now too; then every pipe has an end to read to.
    descendants_.end_all(std::chrono::seconds(1));
    read_output();
    for (Rank& rank : ranks_) {
      for (Stream& stream : rank.streams) shut(rank, stream);
    }
    for (RankEnd& end : outcome_.ends) end.last_lines = ranks_[end.rank].last_lines.text();
  }

  void start(int rank, bool keeps_stdin) {
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    const int threads = threads_of_rank(options_.threads, std::getenv("OMP_NUM_THREADS"), cores, options_.ranks);
    std::vector<std::string> inherited;
    for (char** entry = environ; *entry != nullptr; ++entry) inherited.emplace_back(*entry);
    std::map<std::string, std::string> more = options_.env;
    if (options_.share_gpu) {
      more.merge(shared_gpu_environment(rank, options_.ranks, [](const char* name) { return std::getenv(name); }));
    }
    const RankPlace place{.rank = rank, .ranks = options_.ranks, .port = port_->port(), .threads = threads};
    const RankProcess process = start_rank_process({.command = command_,
                                                    .environment = rank_environment(inherited, place, more),
                                                    .keeps_stdin = keeps_stdin,
                                                    .keeps_stdout = rank == 0 && options_.rank0_keeps_stdout});
    guard_.watch(process.pid);
    Rank& started = ranks_.emplace_back();
    started.rank = rank;
    started.pid = process.pid;
    if (options_.prefix) started.prefix = fmt::format("[rank {}] ", rank);
    started.streams[0] = {process.out_fd, options_.out_fd, {}};
    started.streams[1] = {process.err_fd, options_.err_fd, {}};
  }

  int running() const {
    return static_cast<int>(std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.running; }));
  }

  void wait_for_news() {
    std::vector<pollfd> awaited = {{signals_.fd(), POLLIN, 0}};
    for (const Rank& rank : ranks_) {
      for (const Stream& stream : rank.streams) {
        if (stream.from >= 0) awaited.push_back({stream.from, POLLIN, 0});
      }
    }
    auto until = Clock::now() + std::chrono::seconds(1);
    for (const auto& moment : {terminate_at_, kill_at_}) {
      if (moment) until = std::min(until, *moment);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    poll(awaited.data(), awaited.size(), static_cast<int>(std::max<int64_t>(0, left)));
  }

  void print(Rank& rank, const Stream& stream, const std::vector<std::string>& lines) {
    for (const std::string& line : lines) rank.last_lines.add(line);
    write_all(stream.to, prefixed(rank.prefix, lines));
  }

  // What has come; a stream that ended is closed.
  void read_output() {
    std::array<char, 65536> buffer;
    for (Rank& rank : ranks_) {
      for (Stream& stream : rank.streams) {
        // A bounded number of reads, so that a rank that never stops printing cannot keep us here.
        for (int i = 0; i < 64 && stream.from >= 0; ++i) {
          const ssize_t got = read(stream.from, buffer.data(), buffer.size());
          if (got > 0) {
            print(rank, stream, stream.cutter.take({buffer.data(), static_cast<size_t>(got)}));
          } else if (got == 0) {
            shut(rank, stream);
          } else {
            break;
          }
        }
      }
    }
  }

  void shut(Rank& rank, Stream& stream) {
    if (stream.from < 0) return;
    print(rank, stream, stream.cutter.finish());
    close(stream.from);
    stream.from = -1;
  }

  void reap(int flags) {
    std::vector<RankEnd> ends;
    for (Rank& rank : ranks_) {
      siginfo_t info{};
      // The dead leader is kept for a moment (WNOWAIT): while it is there its group's number cannot go to others.
      if (!rank.running || waitid(P_PID, static_cast<id_t>(rank.pid), &info, flags | WNOWAIT) != 0) continue;
      if (info.si_pid != rank.pid) continue;
      kill(-rank.pid, SIGTERM);  // what it left in its group
      guard_.forget(rank.pid);
      waitpid(rank.pid, nullptr, 0);
      rank.running = false;
      RankEnd end{.rank = rank.rank, .ended_by_us = rank.signalled};
      (info.si_code == CLD_EXITED ? end.exit_code : end.signal) = info.si_status;
      end.unfinished = options_.unfinished_code != 0 && end.exit_code == options_.unfinished_code;
      ends.push_back(end);
    }
    for (const RankEnd& end : in_likely_order(ends)) {
      if (end.failed() && !kill_at_) end_soon(options_.patience, true);
      outcome_.ends.push_back(end);
    }
  }

  // After `grace` the ranks that still run get SIGTERM (unless they had a signal like it), and later SIGKILL.
  void end_soon(std::chrono::milliseconds grace, bool terminate_first) {
    const auto now = Clock::now();
    if (terminate_first) terminate_at_ = now + grace;
    kill_at_ = now + grace + (terminate_first ? options_.terminate_grace : std::chrono::milliseconds(0));
  }

  void take_signals() {
    for (int signal = signals_.next(); signal != 0; signal = signals_.next()) take_signal(signal);
  }

  void take_signal(int signal) {
    if (signal == SIGCHLD) return;
    if (signal == SIGUSR1) {
      pass_on_ahead_of_time();
      return;
    }
    const bool again = outcome_.interrupted != 0 && outcome_.interrupted != SIGUSR1;
    if (signal == SIGPIPE && again) return;
    if (again) {
      kill_at_ = Clock::now();
      return;
    }
    outcome_.interrupted = signal;
    if (running() == 0) return;
    const int passed_on = signal == SIGINT || signal == SIGQUIT ? signal : SIGTERM;
    for (Rank& rank : ranks_) {
      if (rank.running) kill(-rank.pid, passed_on);
    }
    end_soon(options_.interrupt_grace, passed_on != SIGTERM);
    write_all(options_.err_fd, fmt::format("shoal: {} passed on to the ranks; waiting up to {} s for them to end. "
                                           "Once more kills them.\n",
                                           signal == SIGINT ? "Ctrl-C" : fmt::format("signal {}", passed_on),
                                           options_.interrupt_grace.count() / 1000));
  }

  // Who sends SIGUSR1 will send SIGTERM when the time is over.
  void pass_on_ahead_of_time() {
    if (outcome_.interrupted != 0) return;
    outcome_.interrupted = SIGUSR1;
    for (Rank& rank : ranks_) {
      if (rank.running) kill(-rank.pid, SIGUSR1);
    }
    write_all(options_.err_fd,
              fmt::format("shoal: signal {} passed on to the ranks; waiting for them to end.\n", SIGUSR1));
  }

  void escalate() {
    const auto now = Clock::now();
    const auto send = [&](std::optional<Clock::time_point>& moment, int signal) {
      if (!moment || now < *moment) return;
      for (Rank& rank : ranks_) {
        if (rank.running) signal_rank(rank, signal);
      }
      moment.reset();
    };
    const bool killing = kill_at_ && now >= *kill_at_;
    send(terminate_at_, SIGTERM);
    if (!killing) return;
    send(kill_at_, SIGKILL);
    kill_at_ = now + std::chrono::seconds(1);  // again, should a process have been born meanwhile
  }

  void signal_rank(Rank& rank, int signal) {
    rank.signalled = true;
    kill(-rank.pid, signal);
  }

  const LaunchOptions& options_;
  std::vector<std::string> command_;
  TakenSignals signals_;
  std::optional<HeldPort> port_;
  Descendants descendants_;
  Guard guard_;
  std::vector<Rank> ranks_;
  LaunchOutcome outcome_;
  std::optional<Clock::time_point> terminate_at_, kill_at_;
};

}  // namespace

LaunchOutcome launch_ranks(const LaunchOptions& options) {
  if (options.command.empty()) throw Error("launch", "there is no program to start. Give one after \"--\".");
  if (options.ranks < 1 || options.ranks > kMostRanks) {
    throw Error("launch", fmt::format("{} ranks cannot be started on one host. Give a number from 1 to {}.",
                                      options.ranks, kMostRanks));
  }
  check_open_files(options.ranks);
  if (options.share_gpu) {
    write_all(options.err_fd, shared_gpu_notice(options.ranks, mps_runs(std::getenv("CUDA_MPS_PIPE_DIRECTORY"))));
  }
  Launch launch(options);
  return launch.see_through();
}

}  // namespace shoal::launch
