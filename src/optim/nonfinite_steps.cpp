// See nonfinite_steps.h.
#include "optim/nonfinite_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <vector>

namespace shoal {

StepOutcome outcome_of(int64_t step, const StepResult& result, std::optional<double> loss) {
  return {.step = step,
          .loss = loss,
          .finite = result.applied && std::isfinite(result.grad_norm),
          .loss_scale = result.loss_scale,
          .unit = result.overflow_unit};
}

NonfiniteSteps::NonfiniteSteps(const Config& config, int64_t most, bool losses_agree)
    : scale_moves_((config.precision == Precision::fp16 || config.shoal.scale_loss) && config.fp16.loss_scale == 0),
      min_scale_(config.fp16.min_loss_scale),
      most_(most),
      losses_agree_(losses_agree) {}

bool NonfiniteSteps::scale_may_fall(const StepOutcome& outcome) const {
  return scale_moves_ && outcome.loss_scale > min_scale_;
}

void NonfiniteSteps::see(const StepOutcome& outcome) {
  ++seen_;
  loss_is_finite_ = !losses_agree_ || !outcome.loss || std::isfinite(*outcome.loss);
  const bool lost = !loss_is_finite_ || (!outcome.finite && !scale_may_fall(outcome));
  if (lost && count_ == 0) first_ = outcome;
  count_ = lost ? count_ + 1 : 0;
}

std::string NonfiniteSteps::describe() const {
  const std::string steps = count_ == 1 ? fmt::format("step {} is", first_.step)
                                        : fmt::format("steps {} to {} are", first_.step, first_.step + count_ - 1);
  std::vector<std::string> known;
  if (first_.loss) known.push_back(fmt::format("the loss of step {} was {}", first_.step, *first_.loss));
  if (!first_.unit.empty()) {
    known.push_back(fmt::format("a gradient of unit {} was the first that was not finite", first_.unit));
  }
  const bool from_the_start = first_.step == 1;
  return fmt::format("{} not finite{}{}. {}", steps, known.empty() ? "" : ": ", fmt::join(known, ", and "),
                     from_the_start ? "It was so from the first step: look at the weights that the run starts from, at "
                                      "the data, and at the precision."
                                    : "Go on from a checkpoint before it with a lower learning rate, a warm-up, or "
                                      "gradient_clipping; in fp16 try bf16.");
}

}  // namespace shoal
