// SIGINT, SIGTERM and SIGUSR1 (which batch systems send ahead of time) as a wish to stop: the trainer finishes its step
// first. One at a time in a process.
#pragma once

#include <signal.h>

namespace shoal::train {

class StopSignal {
 public:
  // From now on they only leave a note; the third SIGINT or SIGTERM ends the process as usual.
  StopSignal();
  ~StopSignal();  // as before
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // The signal that came first, or 0.
  int received() const;

 private:
  struct sigaction before_interrupt_ {};
  struct sigaction before_terminate_ {};
  struct sigaction before_user_ {};
};

}  // namespace shoal::train
