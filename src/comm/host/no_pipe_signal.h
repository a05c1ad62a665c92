// Around calls that write to connections without a word against SIGPIPE, as Gloo's do: a peer that is gone would end
// this process there, and nobody would say why. The write fails instead. Threads that are made inside never get the
// signal.
#pragma once

#include <csignal>

namespace shoal {

class NoPipeSignal {
 public:
  NoPipeSignal();
  ~NoPipeSignal();
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

 private:
  sigset_t before_;  // what this thread blocks outside
  bool was_pending_ = false;
};

}  // namespace shoal
