// The constants of one step's formulas, for each parameter group, from the optimizer's config and what changes from
// step to step.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
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
// Whether updates with either make the same bits.
bool are_same(const GroupSteps& a, const GroupSteps& b);

// The constants for each of some numbers of steps applied before, the first of them `first_steps_before`.
StepChoices step_choices(const OptimizerConfig& config, int64_t first_steps_before,
                         const std::vector<StepNumbers>& numbers);

// The constants of the step that is taken, where updates find them.
struct StepConstants {
  PlacedSteps placed;  // in the queue's memory, with whether it is taken at all
  // The same for the host; nothing where the step is skipped. Waits for the decision, in any thread, as long as the
  // step's updates are not over.
  std::function<std::optional<GroupSteps>()> decided;
  // Whether that would not wait; in any thread too.
  std::function<bool()> is_decided;
};

}  // namespace shoal
