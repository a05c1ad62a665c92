// See calibration.h. The numbers are written by bench_step_time_fit: run it, and paste what it prints.
#include "forecast/calibration.h"

#include <algorithm>
#include <cmath>

namespace shoal::forecast {

double power_share(const Calibration& calibration, double bf16_flops, double watts) {
  if (watts <= 0 || bf16_flops <= 0) return 1;
  const double asked = bf16_flops / 1e12 / watts;
  return std::min(1.0, std::cbrt(calibration.tflops_a_watt / asked));
}

const Calibration& fitted_calibration() {
  static const Calibration kFitted = {.matmul = 0.85,
                                      .tflops_a_watt = 1.087,
                                      .half_rows = 210.8,
                                      .attention = 0.4584,
                                      .inside = 0.75,
                                      .between = 0.7276,
                                      .shared = 0.1252,
                                      .elementwise = 1.031};
  return kFitted;
}

}  // namespace shoal::forecast
