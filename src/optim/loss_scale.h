// The loss scale of fp16 training, by DeepSpeed's rules: static, or dynamic with hysteresis, window and minimum. How it
// moves is part of a step's decision, kernels/decide.h; here is what the config and checkpoints say of it, and the
// state as the host has last read it.
#pragma once

#include <string>

#include "kernels/decide.h"
#include "shoal/config.h"
#include "shoal/engine_state.h"

namespace shoal {

class LossScale {
 public:
  // Without fp16, and where the config does not ask for it, the scale is 1 for ever.
  explicit LossScale(const Config& config);

  const kernels::ScaleRules& rules() const { return rules_; }
  const kernels::ScaleState& state() const { return state_; }
  double value() const { return state_.scale; }

  // After a step.
  void read(const kernels::ScaleState& state) { state_ = state; }
  // The scale would have had to fall below its minimum in this step: training cannot go on. Throws.
  [[noreturn]] void refuse(int64_t step, const std::string& unit) const;

  // The part of a checkpoint that belongs here. Without a dynamic scale, here or there, the config rules.
  void save(EngineProgress& progress) const;
  void restore(const EngineProgress& progress);

 private:
  kernels::ScaleRules rules_;
  kernels::ScaleState state_;
};

}  // namespace shoal
