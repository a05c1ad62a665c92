// The body of kernels/decide.h, for the host and for a GPU. Only sums, products, quotients and square roots, each
// rounded once as IEEE says, so where it runs changes no bit.
#pragma once

#include <cmath>

#include "kernels/decide.h"

namespace shoal::kernels {

SHOAL_ON_BOTH inline bool is_finite(double value) { return value - value == 0; }

// False: the gradients overflow though the scale is at its minimum; nothing moves.
SHOAL_ON_BOTH inline bool move_scale(const ScaleRules& rules, bool overflow, ScaleState& state) {
  if (!rules.dynamic) return true;
  if (overflow) {
    if (state.hysteresis_left > 1) {
      --state.hysteresis_left;
    } else {
      if (state.scale == rules.min_scale) return false;
      const double half = state.scale / 2;
      state.scale = half > rules.min_scale ? half : rules.min_scale;
    }
    state.last_overflow = state.step;
  } else {
    if (rules.consecutive) state.hysteresis_left = rules.hysteresis;
    const int64_t good_steps_before = state.step - state.last_overflow - 1;
    if (good_steps_before > 0 && good_steps_before % rules.window == 0) {
      if (!rules.consecutive) state.hysteresis_left = rules.hysteresis;
      state.scale *= 2;
    }
  }
  ++state.step;
  return true;
}

// The squares of one flat.
SHOAL_ON_BOTH inline double sum_of_flat(const Decision& decision, int64_t flat) {
  return flat_root(decision.tops, decision.rank_places, decision.rank_of_part, decision.ranks,
                   decision.flat_tops[flat]);
}

// The sums of flats, added in order.
struct FlatSums {
  double sum = 0;
  int64_t first_bad = -1;

  SHOAL_ON_BOTH void add(int64_t flat, double of_flat) {
    if (first_bad < 0 && !is_finite(of_flat)) first_bad = flat;
    sum += of_flat;
  }
};

SHOAL_ON_BOTH inline void decide_by(const FlatSums& sums, const Decision& decision) {
  const StepRules& rules = decision.rules;
  StepProgress progress = *decision.progress;
  StepRecord record;
  const double norm = std::sqrt(sums.sum);
  const bool finite = is_finite(norm);
  const bool taken = finite || rules.takes_any;
  record.applied = taken ? 1 : 0;
  record.first_bad = finite ? -1 : sums.first_bad;
  record.loss_scale = progress.scale.scale;
  record.grad_norm = norm / record.loss_scale;
  if (norm != norm) record.grad_norm = NAN;  // of one sign: which one an operation gives is nobody's promise
  record.steps_before = progress.applied;
  double clip = 1;
  if (rules.gradient_clipping > 0 && finite) {
    const double excess = (record.grad_norm + 1e-6) / rules.gradient_clipping;
    if (excess > 1) clip = excess;
  }
  record.grad_scale = 1 / (record.loss_scale * clip);
  ++(taken ? progress.applied : progress.skipped);
  record.scale_exhausted = move_scale(rules.scale, !taken, progress.scale) ? 0 : 1;
  progress.backward_scale = static_cast<float>(progress.scale.scale);
  record.after = progress;
  *decision.progress = progress;
  *decision.record = record;
}

// One group's constants. A number of steps that no choice is for cannot be reported here: whoever reads the record
// compares it with what it offered.
template <class Step>
SHOAL_ON_BOTH inline void pick(const StepChoice<Step>& choice, const StepRecord& record, int64_t group) {
  int64_t index = record.steps_before - choice.first_steps_before;
  if (index < 0) index = 0;
  if (index >= choice.count) index = choice.count - 1;
  Step step = choice.choices[index * choice.groups + group];
  step.grad_scale = static_cast<float>(record.grad_scale);
  choice.picked[group] = step;
}

}  // namespace shoal::kernels
