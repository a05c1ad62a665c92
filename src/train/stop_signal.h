// SIGINT and SIGTERM as a wish to stop: the trainer finishes its step first. One at a time in a process.
#pragma once

#include <signal.h>

namespace shoal::train {

class StopSignal {
 public:
  StopSignal();   // from now on the two signals only leave a note; the third one ends the process as usual
  ~StopSignal();  // as before
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // The signal that came first, or 0.
  int received() const;

 private:
  struct sigaction before_interrupt_ {};
  struct sigaction before_terminate_ {};
};

}  // namespace shoal::train
