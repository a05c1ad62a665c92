// See cuda_holds.h.
#include "device/cuda_holds.h"

#include <utility>

namespace shoal {

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
    held_seconds_ += holds_.front()->went_on.seconds_since(holds_.front()->stopped);
    free_.push_back(std::move(holds_.front()));
    holds_.pop_front();
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
