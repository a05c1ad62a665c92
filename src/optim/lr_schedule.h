// Learning rates as a function of the number of applied steps, with DeepSpeed's formulas, or transformers' for what
// DeepSpeed has not.
// A skipped step does not advance the schedule.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "shoal/config.h"

namespace shoal {

class LrSchedule {
 public:
  // group_lrs: the learning rate that each parameter group was configured with.
  LrSchedule(SchedulerConfig config, std::vector<double> group_lrs);

  // The rate of each group for the step after `applied_steps` steps.
  std::vector<double> lrs(int64_t applied_steps) const;
  // beta1 for that step, where the schedule cycles the momentum; else nothing.
  std::optional<double> beta1(int64_t applied_steps) const;
  // beta2 goes with it: DeepSpeed's OneCycle sets it to 0.99.
  std::optional<double> beta2() const;

 private:
  double param(const char* name) const;
  double param_or(const char* name, double otherwise) const;
  double warmup_fraction(int64_t iteration) const;
  double cycle_position(int64_t iteration) const;
  double stable_decay_share(double step) const;
  double restarts_share(double step) const;
  double group_lr(double group_lr, int64_t iteration) const;

  SchedulerConfig config_;
  std::vector<double> group_lrs_;
};

}  // namespace shoal
