// Starts the ranks of one host as processes and sees them to their end: `shoal launch`, and `shoal train --ranks`.
// The ranks get torchrun's variables. No process that a rank started is left behind, however the launch ends.
// What the ranks do and how they talk is their own affair; across hosts use torchrun, mpirun or srun.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/outcome.h"

namespace shoal::launch {

// More on one host is a slip of the pen.
inline constexpr int kMostRanks = 1024;

struct LaunchOptions {
  std::vector<std::string> command;             // the program and its words; found by PATH
  int ranks = 1;                                // all on this host
  int threads = 0;                              // OMP_NUM_THREADS; 0: the environment's, else cores / ranks
  bool prefix = true;                           // "[rank 1] " before each line
  bool rank0_keeps_stdout = false;              // rank 0 writes to our stdout itself: it sees the terminal
  std::map<std::string, std::string> env = {};  // more variables for every rank
  bool share_gpu = false;                       // all on the first visible GPU, over NCCL: see shared_gpu.h

  std::chrono::milliseconds patience{10000};         // after a rank failed: for the others to end by themselves
  std::chrono::milliseconds interrupt_grace{60000};  // after Ctrl-C or SIGTERM: the ranks may save first
  std::chrono::milliseconds terminate_grace{5000};   // between our SIGTERM and SIGKILL

  bool usr1_stops = false;  // SIGUSR1 is passed on too, for ranks that end well by it, and nobody is killed for it
  int unfinished_code = 0;  // an exit code that is no failure: stopped before the end, or a finding; 0: none is that

  // Asked when all ranks have ended and some failed, unless a signal ended the launch: the command to start all of them
  // with again, or nothing, and the launch ends. It may say why, on err_fd. Left out: the launch ends.
  std::function<std::optional<std::vector<std::string>>(const LaunchOutcome&)> again = {};

  int out_fd = 1;  // what ranks print goes here
  int err_fd = 2;  // what they print as errors, and how the launch ended, goes here
};

// Blocks until every rank has ended, and is not started again. SIGINT, SIGTERM, SIGHUP and SIGQUIT are taken over
// meanwhile: the first is passed on to the ranks, the second kills them. One launch at a time in a process. Throws
// Error when the program cannot be started, or, before anything is, when so many ranks cannot be.
LaunchOutcome launch_ranks(const LaunchOptions& options);

}  // namespace shoal::launch
