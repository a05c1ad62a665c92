// See step_line.h.
#include "engine/step_line.h"

#include <fmt/format.h>

#include <cstdio>

namespace shoal {

std::string step_line(const StepResult& result) {
  std::string line = fmt::format("step {} | norm {:.4g} | lr {:.3g}", result.applied_steps + result.skipped_steps,
                                 result.grad_norm, result.lrs.empty() ? 0.0 : result.lrs[0]);
  if (result.loss_scale != 1) line += fmt::format(" | scale {:g}", result.loss_scale);
  line += fmt::format(" | skipped {}", result.skipped_steps);
  if (!result.applied) line += fmt::format(" | skipped now: a gradient in {} is not finite", result.overflow_unit);
  return line;
}

std::string time_line(const StepResult& result, const StepTimes& times) {
  std::string line = fmt::format("step {} | forward {:.1f} ms | backward {:.1f} ms | update {:.1f} ms",
                                 result.applied_steps + result.skipped_steps, times.forward * 1e3, times.backward * 1e3,
                                 times.step * 1e3);
  if (times.host > 0) line += fmt::format(", {:.1f} ms of an earlier step waiting for the host", times.host * 1e3);
  if (times.disk > 0) line += fmt::format(", {:.1f} ms since the last step waiting for the disk", times.disk * 1e3);
  return line;
}

void print_step(const Config& config, const StepResult& result, const StepTimes& times) {
  const int64_t number = result.applied_steps + result.skipped_steps;
  if (!result.applied || (config.steps_per_print > 0 && number % config.steps_per_print == 0)) {
    fmt::print(stderr, "shoal: {}\n", step_line(result));
  }
  if (config.wall_clock_breakdown) fmt::print(stderr, "shoal: {}\n", time_line(result, times));
}

}  // namespace shoal
