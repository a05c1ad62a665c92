// The signals that end a launch, read from a descriptor instead of interrupting us. Works whichever thread of the
// process the system hands a signal to. One at a time.
#pragma once

#include <signal.h>

#include <map>

namespace shoal::launch {

class TakenSignals {
 public:
  // Takes SIGINT, SIGTERM, SIGHUP, SIGQUIT (those that were ignored stay so), SIGPIPE and SIGCHLD; SIGUSR1 if asked to.
  explicit TakenSignals(bool usr1 = false);
  ~TakenSignals();  // as before
  TakenSignals(const TakenSignals&) = delete;
  TakenSignals& operator=(const TakenSignals&) = delete;

  int fd() const { return read_fd_; }  // readable when there is one
  int next();                          // 0: none

 private:
  int read_fd_ = -1;
  int write_fd_ = -1;
  std::map<int, struct sigaction> before_;
};

}  // namespace shoal::launch
