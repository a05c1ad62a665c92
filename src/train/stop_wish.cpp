// See stop_wish.h.
#include "train/stop_wish.h"

#include <fmt/format.h>

#include <chrono>

#include "base/unix_time.h"

namespace shoal::train {

int StopWish::reason() const {
  if (const int signal = signals_.received(); signal != 0) return signal;
  return ends_at_ > 0 && unix_seconds() >= ends_at_ ? kTimeIsOver : 0;
}

bool saves_before(int reason, const TrainOptions& options) {
  if (options.out.empty()) return false;
  return options.save_on_exit || (reason != SIGINT && options.save_at_end);
}

int exit_code_of(int reason) {
  constexpr int kSignalExit = 128;
  return reason == kTimeIsOver ? kUnfinishedExit : kSignalExit + reason;
}

std::string stop_text(int reason, int64_t step) {
  if (reason == kTimeIsOver) {
    return fmt::format("stopped after step {}, since the time of --max-hours is over", step);
  }
  return fmt::format("stopped after step {} by signal {}", step, reason);
}

EventFacts stop_facts(int reason) {
  if (reason == kTimeIsOver) return {{"why", "the time of --max-hours is over"}};
  return {{"signal", reason}};
}

}  // namespace shoal::train
