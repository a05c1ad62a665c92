// Starts one rank as a process: its own process group, its output in pipes, killed by the kernel when we die.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace shoal::launch {

struct RankProcess {
  pid_t pid = -1;   // also the id of its process group
  int out_fd = -1;  // what it prints; -1: it writes to our stdout itself
  int err_fd = -1;
};

struct ProcessOptions {
  std::vector<std::string> command;
  std::vector<std::string> environment;
  bool keeps_stdin = false;  // else it reads nothing
  bool keeps_stdout = false;
};

// Throws Error when the program cannot be started; then no process is left. Signals are unblocked in the new process.
RankProcess start_rank_process(const ProcessOptions& options);

}  // namespace shoal::launch
