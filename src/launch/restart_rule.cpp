// See restart_rule.h.
#include "launch/restart_rule.h"

#include <fmt/format.h>
#include <signal.h>

namespace shoal::launch {

namespace {

constexpr int kWrongUsage = 2;  // exit code of the command

// Of a rank that somebody told to stop, whether it could still end its step or not; 0: nobody did.
int stop_signal_of(const RankEnd& end) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    if (end.signal == signal || (end.signal == 0 && end.exit_code == 128 + signal)) return signal;
  }
  return 0;
}

}  // namespace

std::string RestartRule::refusal(const RankEnd& failure, int64_t step) {
  if (const int signal = stop_signal_of(failure); signal != 0) {
    return fmt::format("The ranks are not started again: rank {} was told to stop, by signal {}.", failure.rank,
                       signal);
  }
  if (failure.signal == 0 && failure.exit_code == kWrongUsage) {
    return "The ranks are not started again: exit code 2 is a wrong flag or config, and would come again.";
  }
  if (failure.signal == 0 && failure.exit_code == kAuditExit) {
    return "The ranks are not started again: exit code 4 is an audit that found a rank that computes wrong, and "
           "checkpoints since the audit before may hold what it computed.";
  }
  const Failure now = {failure.exit_code, failure.signal, step};
  in_a_row_ = last_ == now ? in_a_row_ + 1 : 1;
  last_ = now;
  // SIGKILL comes from outside, and says nothing of the run.
  if (in_a_row_ >= kSameFailures && failure.signal != SIGKILL) {
    return fmt::format(
        "The ranks are not started again: {} times in a row they failed after step {} with {}. Mend what the last "
        "lines "
        "say.",
        in_a_row_, step, how_it_ended(failure));
  }
  if (used_ >= restarts_) {
    return fmt::format("The ranks are not started again: {} of {} restarts are used.", used_, restarts_);
  }
  ++used_;
  return "";
}

}  // namespace shoal::launch
