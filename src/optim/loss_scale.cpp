// See loss_scale.h.
#include "optim/loss_scale.h"

#include <fmt/format.h>

#include <cmath>

#include "shoal/error.h"

namespace shoal {

LossScale::LossScale(const Config& config) {
  if (config.precision != Precision::fp16 && !config.shoal.scale_loss) return;
  const Fp16Config& fp16 = config.fp16;
  rules_.dynamic = fp16.loss_scale == 0;
  rules_.min_scale = fp16.min_loss_scale;
  rules_.window = fp16.loss_scale_window;
  rules_.hysteresis = state_.hysteresis_left = fp16.hysteresis;
  rules_.consecutive = fp16.consecutive_hysteresis;
  state_.scale = rules_.dynamic ? std::ldexp(1.0, fp16.initial_scale_power) : fp16.loss_scale;
}

void LossScale::refuse(int64_t step, const std::string& unit) const {
  throw Error("loss scale",
              fmt::format("the gradients overflow at step {}, first in {}, though the loss scale is at its "
                          "minimum, {}. Lower the learning rate, use bf16, or lower fp16.min_loss_scale.",
                          step, unit, rules_.min_scale));
}

void LossScale::save(EngineProgress& progress) const {
  progress.loss_scale = rules_.dynamic ? state_.scale : 0;
  progress.loss_scale_hysteresis_left = state_.hysteresis_left;
  progress.loss_scale_step = state_.step;
  progress.loss_scale_last_overflow = state_.last_overflow;
}

void LossScale::restore(const EngineProgress& progress) {
  if (!rules_.dynamic || progress.loss_scale == 0) return;
  state_.scale = progress.loss_scale;
  state_.hysteresis_left = progress.loss_scale_hysteresis_left;
  state_.step = progress.loss_scale_step;
  state_.last_overflow = progress.loss_scale_last_overflow;
}

}  // namespace shoal
