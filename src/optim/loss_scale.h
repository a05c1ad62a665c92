// The loss scale of fp16 training, by DeepSpeed's rules: static, or dynamic with hysteresis, window and minimum.
#pragma once

#include <cstdint>

#include "shoal/config.h"

namespace shoal {

class LossScale {
 public:
  // Without fp16 the scale is 1 for ever.
  explicit LossScale(const Config& config);

  double value() const { return scale_; }
  // Told once a step. Throws when the scale overflows again at its minimum: training cannot go on.
  void update(bool overflow);

 private:
  bool dynamic_ = false;
  double scale_ = 1;
  double min_scale_ = 1;
  int64_t window_ = 1000;
  int hysteresis_ = 1;  // overflows in a row that are borne before the scale is halved
  int hysteresis_left_ = 1;
  bool consecutive_ = false;  // any good step refills the hysteresis
  int64_t step_ = 0;
  int64_t last_overflow_step_ = -1;
};

}  // namespace shoal
