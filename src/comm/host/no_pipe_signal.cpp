// See no_pipe_signal.h.
#include "comm/host/no_pipe_signal.h"

#include <pthread.h>

#include <ctime>

namespace shoal {

namespace {

sigset_t pipe_signal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  return set;
}

bool is_pending() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGPIPE) == 1;
}

}  // namespace

NoPipeSignal::NoPipeSignal() : was_pending_(is_pending()) {
  const sigset_t set = pipe_signal();
  pthread_sigmask(SIG_BLOCK, &set, &before_);
}

// One that came meanwhile is taken away before it can act; one that somebody else has blocked and awaits is his.
NoPipeSignal::~NoPipeSignal() {
  const sigset_t set = pipe_signal();
  const timespec at_once = {};
  if (!was_pending_ && is_pending()) sigtimedwait(&set, nullptr, &at_once);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace shoal
