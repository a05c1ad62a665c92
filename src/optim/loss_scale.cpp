// See loss_scale.h.
#include "optim/loss_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "shoal/error.h"

namespace shoal {

LossScale::LossScale(const Config& config) {
  if (config.precision != Precision::fp16) return;
  const Fp16Config& fp16 = config.fp16;
  dynamic_ = fp16.loss_scale == 0;
  scale_ = dynamic_ ? std::ldexp(1.0, fp16.initial_scale_power) : fp16.loss_scale;
  min_scale_ = fp16.min_loss_scale;
  window_ = fp16.loss_scale_window;
  hysteresis_ = hysteresis_left_ = fp16.hysteresis;
  consecutive_ = fp16.consecutive_hysteresis;
}

void LossScale::save(EngineProgress& progress) const {
  progress.loss_scale = dynamic_ ? scale_ : 0;
  progress.loss_scale_hysteresis_left = hysteresis_left_;
  progress.loss_scale_step = step_;
  progress.loss_scale_last_overflow = last_overflow_step_;
}

void LossScale::restore(const EngineProgress& progress) {
  if (!dynamic_ || progress.loss_scale == 0) return;
  scale_ = progress.loss_scale;
  hysteresis_left_ = static_cast<int>(progress.loss_scale_hysteresis_left);
  step_ = progress.loss_scale_step;
  last_overflow_step_ = progress.loss_scale_last_overflow;
}

void LossScale::update(bool overflow) {
  if (!dynamic_) return;
  if (overflow) {
    if (hysteresis_left_ > 1) {
      --hysteresis_left_;
    } else {
      if (scale_ == min_scale_) {
        throw Error("loss scale", fmt::format("the gradients overflow though the loss scale is at its minimum, {}. "
                                              "Lower the learning rate, use bf16, or lower fp16.min_loss_scale.",
                                              min_scale_));
      }
      scale_ = std::max(scale_ / 2, min_scale_);
    }
    last_overflow_step_ = step_;
  } else {
    if (consecutive_) hysteresis_left_ = hysteresis_;
    const int64_t good_steps_before = step_ - last_overflow_step_ - 1;
    if (good_steps_before > 0 && good_steps_before % window_ == 0) {
      if (!consecutive_) hysteresis_left_ = hysteresis_;
      scale_ *= 2;
    }
  }
  ++step_;
}

}  // namespace shoal
