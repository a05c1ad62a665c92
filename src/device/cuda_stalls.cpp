// See cuda_holds.h.
#include "device/cuda_holds.h"

#include <cmath>
#include <utility>

namespace shoal {

namespace {

// What a hold takes on a GPU where the point is reached already, and as finely as its events measure.
constexpr double kNoWaitSeconds = 2e-6;

}  // namespace

void CudaHolds::log_as(const std::string& what) {
  const std::lock_guard lock(mutex_);
  what_ = what;
}

void CudaHolds::stop() {
  const std::lock_guard lock(mutex_);
  stop_locked();
}

void CudaHolds::forget_stop() {
  const std::lock_guard lock(mutex_);
  if (stopped_) free_.push_back(std::move(stopped_));
}

void CudaHolds::hold(const cuda::Event& until) {
  const std::lock_guard lock(mutex_);
  count_locked();  // so that no more of them wait than are under way, whoever asks or does not
  if (!stopped_) stop_locked();
  until.hold_back(stream_);
  stopped_->went_on.record(stream_);
  holds_.push_back(std::move(stopped_));
}

double CudaHolds::held_seconds() {
  const std::lock_guard lock(mutex_);
  count_locked();
  return held_seconds_;
}

double CudaHolds::newly_held_seconds() {
  const std::lock_guard lock(mutex_);
  count_locked();
  return held_seconds_ - std::exchange(told_seconds_, held_seconds_);
}

void CudaHolds::count_locked() {
  while (!holds_.empty() && holds_.front()->went_on.reached()) {
    const double seconds = holds_.front()->went_on.seconds_since(holds_.front()->stopped);
    held_seconds_ += seconds;
    free_.push_back(std::move(holds_.front()));
    holds_.pop_front();
    log_locked(*free_.back(), seconds);
  }
}

void CudaHolds::log_locked(const Hold& hold, double seconds) {
  WaitLog& log = WaitLog::of_process();
  const uint64_t period = log.period();
  if (period == 0 || what_.empty() || seconds < kNoWaitSeconds) return;
  try {
    if (clock_period_ != period) clock_.emplace(device_);
    clock_period_ = period;
    const int64_t end_ns = clock_->unix_ns(hold.went_on);
    log.add(what_, end_ns - std::llround(seconds * 1e9), end_ns);
  } catch (const std::exception&) {  // a trace that lacks a wait ends no step
  }
}

void CudaHolds::stop_locked() {
  cuda::use_device(device_);  // whose events they become
  if (free_.empty()) free_.push_back(std::make_unique<Hold>());
  stopped_ = std::move(free_.back());
  free_.pop_back();
  stopped_->stopped.record(stream_);
}

}  // namespace shoal
