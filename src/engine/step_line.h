// The line that rank 0 prints about a step (steps_per_print), and where its time went (wall_clock_breakdown).
#pragma once

#include <string>

#include "shoal/config.h"
#include "shoal/step_result.h"

namespace shoal {

// Seconds since the last step, by what the caller's thread did.
struct StepTimes {
  double forward = 0;  // inside run(), evaluation apart
  double backward = 0;
  double step = 0;
  double disk = 0;  // waiting for the disk tier, wherever that was
  double host = 0;  // of an earlier step, the GPU waiting for the host tier
};

std::string step_line(const StepResult& result);
std::string time_line(const StepResult& result, const StepTimes& times);

// On stderr, as far as the config asks for it; a step that was skipped is always said.
void print_step(const Config& config, const StepResult& result, const StepTimes& times);

}  // namespace shoal
