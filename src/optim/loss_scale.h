// The loss scale of fp16 training, by DeepSpeed's rules: static, or dynamic with hysteresis, window and minimum.
#pragma once

#include <cstdint>

#include "shoal/config.h"
#include "shoal/engine_state.h"

namespace shoal {

class LossScale {
 public:
  // Without fp16 the scale is 1 for ever.
  explicit LossScale(const Config& config);

  double value() const { return scale_; }
  // Told once a step. Throws when the scale overflows again at its minimum: training cannot go on.
  void update(bool overflow);

  // The part of a checkpoint that belongs here. Without a dynamic scale, here or there, the config rules.
  void save(EngineProgress& progress) const;
  void restore(const EngineProgress& progress);

 private:
  bool dynamic_ = false;
  double scale_ = 1;
  double min_scale_ = 1;
  int64_t window_ = 1000;
  int hysteresis_ = 1;  // overflows that are borne before the scale is halved, until a good window refills them
  int hysteresis_left_ = 1;
  bool consecutive_ = false;  // any good step refills the hysteresis
  int64_t step_ = 0;
  int64_t last_overflow_step_ = -1;
};

}  // namespace shoal
