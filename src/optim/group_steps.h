// The constants of one step's formulas, for each parameter group, from the optimizer's config and what changes from
// step to step.
#pragma once

#include <cstdint>
#include <vector>

#include "device/queue.h"
#include "shoal/config.h"

namespace shoal {

// What changes from step to step.
struct StepNumbers {
  int64_t step = 1;  // of the applied steps, this one counted
  double grad_scale = 1;
  std::vector<double> lrs;            // per parameter group
  std::vector<double> weight_decays;  // per parameter group
  double beta1 = 0.9, beta2 = 0.999;
};

GroupSteps group_steps(const OptimizerConfig& config, const StepNumbers& numbers);

}  // namespace shoal
