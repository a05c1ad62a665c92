// See stop_signal.h.
#include "train/stop_signal.h"

#include <atomic>

namespace shoal::train {

namespace {

// A handler sees nothing but what is static.
std::atomic<int> noted_signal{0};
std::atomic<int> noted_count{0};
static_assert(std::atomic<int>::is_always_lock_free);

// A terminal sends Ctrl-C to every process in the foreground and a launcher may pass its own on, so a second one does
// not mean that the user is out of patience.
constexpr int kPatience = 3;

void note(int signal) {
  int none = 0;
  noted_signal.compare_exchange_strong(none, signal);
  if (signal == SIGUSR1 || ++noted_count < kPatience) return;
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

StopSignal::StopSignal() {
  noted_signal = 0;
  noted_count = 0;
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &before_interrupt_);
  sigaction(SIGTERM, &action, &before_terminate_);
  sigaction(SIGUSR1, &action, &before_user_);
}

StopSignal::~StopSignal() {
  sigaction(SIGINT, &before_interrupt_, nullptr);
  sigaction(SIGTERM, &before_terminate_, nullptr);
  sigaction(SIGUSR1, &before_user_, nullptr);
}

int StopSignal::received() const { return noted_signal; }

}  // namespace shoal::train
