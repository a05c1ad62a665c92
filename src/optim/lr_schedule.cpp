// See lr_schedule.h. `iteration` is DeepSpeed's last_batch_iteration: -1 before the first step was applied.
#include "optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace shoal {

LrSchedule::LrSchedule(SchedulerConfig config, std::vector<double> group_lrs)
    : config_(std::move(config)), group_lrs_(std::move(group_lrs)) {}

double LrSchedule::param(const char* name) const {
  const auto found = config_.params.find(name);
  SHOAL_CHECK(found != config_.params.end(), "the scheduler has no {}", name);
  return found->second;
}

double LrSchedule::param_or(const char* name, double otherwise) const {
  const auto found = config_.params.find(name);
  return found == config_.params.end() ? otherwise : found->second;
}

std::vector<double> LrSchedule::lrs(int64_t applied_steps) const {
  std::vector<double> rates;
  for (const double lr : group_lrs_) rates.push_back(group_lr(lr, applied_steps - 1));
  return rates;
}

// From 0 to 1 over warmup_num_steps.
double LrSchedule::warmup_fraction(int64_t iteration) const {
  const double steps = std::max(2.0, param("warmup_num_steps"));
  if (config_.log_warmup) return std::log(static_cast<double>(iteration) + 1) / std::log(steps);
  return static_cast<double>(iteration) / steps;
}

// Where OneCycle stands between its minimum (0) and maximum (1).
double LrSchedule::cycle_position(int64_t iteration) const {
  const double first = param("cycle_first_step_size");
  const double second = param_or("cycle_second_step_size", first);
  const double total = first + second;
  const double at = static_cast<double>(iteration) + 1;
  const double x = 1 + at / total - std::floor(1 + at / total);
  const double ratio = first / total;
  const bool rising = x <= ratio;
  const double first_stairs = param_or("cycle_first_stair_count", 0);
  const double stairs = rising ? first_stairs : param_or("cycle_second_stair_count", first_stairs);
  if (stairs <= 0) return rising ? x / ratio : (x - 1) / (ratio - 1);
  const double in_cycle = std::fmod(at, total);
  const double stair = in_cycle <= first ? in_cycle * stairs / first : (total - in_cycle) * stairs / second;
  return std::floor(stair) / stairs;
}

// transformers' get_wsd_schedule; `step`: steps that were applied.
double LrSchedule::stable_decay_share(double step) const {
  const double warmup = param("warmup_num_steps"), total = param("total_num_steps");
  const double low = param_or("min_lr_ratio", 0);
  if (step < warmup) return low + (1 - low) * step / warmup;
  const double decay = param_or("decay_num_steps", std::ceil(total / 10));
  const double progress = std::clamp((step - std::max(warmup, total - decay)) / decay, 0.0, 1.0);
  switch (config_.decay_curve) {
    case DecayCurve::cosine: return low + (1 - low) * (1 + std::cos(std::numbers::pi * progress)) / 2;
    case DecayCurve::linear: return low + (1 - low) * (1 - progress);
    case DecayCurve::one_minus_sqrt: return low + (1 - low) * (1 - std::sqrt(progress));
  }
  return 1;
}

// transformers' get_cosine_with_hard_restarts_schedule_with_warmup.
double LrSchedule::restarts_share(double step) const {
  const double warmup = param("warmup_num_steps"), total = param("total_num_steps");
  const double low = param_or("min_lr_ratio", 0);
  if (step < warmup) return step / warmup;
  const double progress = (step - warmup) / std::max(1.0, total - warmup);
  if (progress >= 1) return low;
  const double in_cycle = std::fmod(param_or("num_cycles", 1) * progress, 1.0);
  return low + (1 - low) * (1 + std::cos(std::numbers::pi * in_cycle)) / 2;
}

double LrSchedule::group_lr(double group_lr, int64_t iteration) const {
  const double i = static_cast<double>(iteration);
  switch (config_.kind) {
    case SchedulerKind::none: return group_lr;
    case SchedulerKind::warmup:
    case SchedulerKind::warmup_decay: {
      const double low = param_or("warmup_min_lr", 0);
      const double high = param_or("warmup_max_lr", group_lr);
      if (iteration < 0) return low;
      const double warmup = std::max(2.0, param("warmup_num_steps"));
      if (i < warmup) return low + (high - low) * warmup_fraction(iteration);
      if (config_.kind == SchedulerKind::warmup) return high;
      const double total = param("total_num_steps");
      return low + (high - low) * std::max(0.0, (total - i) / std::max(1.0, total - warmup));
    }
    case SchedulerKind::warmup_cosine: {
      if (iteration < 0) return 0;
      const double warmup = std::max(2.0, param("warmup_num_steps"));
      if (i < warmup) {
        const double low = param_or("warmup_min_ratio", 0);
        return group_lr * (low + (1 - low) * warmup_fraction(iteration));
      }
      const double progress = std::min(1.0, (i - warmup + 1) / std::max(1.0, param("total_num_steps") - warmup));
      const double low = param_or("cos_min_ratio", 1e-4);
      return group_lr * std::max(0.0, low + (1 - low) * (1 + std::cos(std::numbers::pi * progress)) / 2);
    }
    case SchedulerKind::one_cycle: {
      const double low = param("cycle_min_lr");
      if (iteration < 0) return low;
      const double first = param("cycle_first_step_size");
      const double total = first + param_or("cycle_second_step_size", first);
      if (i < total) return low + (param("cycle_max_lr") - low) * cycle_position(iteration);
      const double decay_steps = param_or("decay_step_size", 0);
      const double rate = param_or("decay_lr_rate", 0);
      if (decay_steps == 0 || rate == 0) return low;
      return low / (1 + rate * (i - total + 1) / decay_steps);
    }
    case SchedulerKind::lr_range_test: {
      const double low = param("lr_range_test_min_lr");
      if (iteration < 0) return low;
      double interval = (i + 1) / param("lr_range_test_step_size");
      if (param_or("lr_range_test_staircase", 0) != 0) interval = std::floor(interval);
      return low * (1 + param("lr_range_test_step_rate") * interval);
    }
    case SchedulerKind::warmup_stable_decay: return group_lr * stable_decay_share(i + 1);
    case SchedulerKind::warmup_cosine_restarts: return group_lr * restarts_share(i + 1);
  }
  return group_lr;
}

std::optional<double> LrSchedule::beta1(int64_t applied_steps) const {
  if (config_.kind != SchedulerKind::one_cycle || param_or("cycle_momentum", 1) == 0) return std::nullopt;
  const int64_t iteration = applied_steps - 1;
  const double low = param_or("cycle_min_mom", 0.8);
  const double high = param_or("cycle_max_mom", 0.9);
  if (iteration < 0) return low;
  const double first = param("cycle_first_step_size");
  const double total = first + param_or("cycle_second_step_size", first);
  const double i = static_cast<double>(iteration);
  if (i < total) return high - (high - low) * cycle_position(iteration);
  const double decay_steps = param_or("decay_step_size", 0);
  const double rate = param_or("decay_mom_rate", 0);
  if (decay_steps == 0 || rate == 0) return high;
  return high * (1 + rate * (i - total + 1) / decay_steps);
}

std::optional<double> LrSchedule::beta2() const {
  if (config_.kind != SchedulerKind::one_cycle || param_or("cycle_momentum", 1) == 0) return std::nullopt;
  return 0.99;
}

}  // namespace shoal
