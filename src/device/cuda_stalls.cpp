// See cuda_stalls.h.
#include "device/cuda_stalls.h"

#include <cmath>
#include <utility>

namespace shoal {

namespace {

// What a hold takes on a GPU where the point is reached already, and as finely as its events measure.
constexpr double kNoWaitSeconds = 2e-6;

}  // namespace

void CudaStalls::log_as(const std::string& what) {
  const std::lock_guard lock(mutex_);
  what_ = what;
}

void CudaStalls::stop() {
  const std::lock_guard lock(mutex_);
  stop_locked();
}

void CudaStalls::forget_stop() {
  const std::lock_guard lock(mutex_);
  if (stopped_) free_.push_back(std::move(stopped_));
}

void CudaStalls::hold(const cuda::Event& until) {
  const std::lock_guard lock(mutex_);
  count_locked();  // so that no more of them wait than are under way, whoever asks or does not
  if (!stopped_) stop_locked();
  until.hold_back(stream_);
  stopped_->went_on.record(stream_);
  stalls_.push_back(std::move(stopped_));
}

double CudaStalls::held_seconds() {
  const std::lock_guard lock(mutex_);
  count_locked();
  return held_seconds_;
}

double CudaStalls::newly_held_seconds() {
  const std::lock_guard lock(mutex_);
  count_locked();
  return held_seconds_ - std::exchange(told_seconds_, held_seconds_);
}

void CudaStalls::count_locked() {
  while (!stalls_.empty() && stalls_.front()->went_on.reached()) {
    const double seconds = stalls_.front()->went_on.seconds_since(stalls_.front()->stopped);
    held_seconds_ += seconds;
    free_.push_back(std::move(stalls_.front()));
    stalls_.pop_front();
    log_locked(*free_.back(), seconds);
  }
}

void CudaStalls::log_locked(const Stall& stall, double seconds) {
  WaitLog& log = WaitLog::of_process();
  const uint64_t period = log.period();
  if (period == 0 || what_.empty() || seconds < kNoWaitSeconds) return;
  try {
    if (clock_period_ != period) clock_.emplace(device_);
    clock_period_ = period;
    const int64_t end_ns = clock_->unix_ns(stall.went_on);
    log.add(what_, end_ns - std::llround(seconds * 1e9), end_ns);
  } catch (const std::exception&) {  // a trace that lacks a wait ends no step
  }
}

void CudaStalls::stop_locked() {
  cuda::use_device(device_);  // whose events they become
  if (free_.empty()) free_.push_back(std::make_unique<Stall>());
  stopped_ = std::move(free_.back());
  free_.pop_back();
  stopped_->stopped.record(stream_);
}

}  // namespace shoal
