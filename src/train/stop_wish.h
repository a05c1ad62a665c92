// Why a run ends before its last step: a signal, or its time is over (--max-hours). Each rank has its own; they tell
// each other with their losses, and all stop after the same step for the same reason, which is a number: that of the
// signal, or kTimeIsOver; 0: none. Pure but for the clock and the signals.
#pragma once

#include <cstdint>
#include <string>

#include "train/options.h"
#include "train/run_events.h"
#include "train/stop_signal.h"

namespace shoal::train {

inline constexpr int kTimeIsOver = -1;
// Exit code of a run whose time was over before its steps were (EX_TEMPFAIL): the same command goes on.
inline constexpr int kUnfinishedExit = 75;

class StopWish {
 public:
  explicit StopWish(const TrainOptions& options) : ends_at_(options.ends_at) {}

  int reason() const;  // of this rank, by now

 private:
  StopSignal signals_;
  double ends_at_ = 0;
};

// Whether a run that stops for this reason saves first. Who presses Ctrl-C wants it to end.
bool saves_before(int reason, const TrainOptions& options);
// 128 + signal, or kUnfinishedExit.
int exit_code_of(int reason);
// "stopped after step 7 by signal 15".
std::string stop_text(int reason, int64_t step);
// Of the event "stopped".
EventFacts stop_facts(int reason);

}  // namespace shoal::train
