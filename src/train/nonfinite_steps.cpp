// See nonfinite_steps.h.
#include "train/nonfinite_steps.h"

#include <fmt/format.h>

#include <cmath>

namespace shoal::train {

bool NonfiniteSteps::scale_may_fall(const StepOutcome& outcome) const {
  return fp16_.enabled && fp16_.loss_scale == 0 && outcome.loss_scale > fp16_.min_loss_scale;
}

void NonfiniteSteps::see(const StepOutcome& outcome) {
  loss_is_finite_ = std::isfinite(outcome.loss);
  const bool lost = !loss_is_finite_ || (!outcome.applied && !scale_may_fall(outcome));
  if (lost && count_ == 0) first_ = outcome;
  count_ = lost ? count_ + 1 : 0;
}

std::string NonfiniteSteps::describe() const {
  const std::string steps = count_ == 1 ? fmt::format("step {} is", first_.step)
                                        : fmt::format("steps {} to {} are", first_.step, first_.step + count_ - 1);
  const std::string where =
      first_.unit.empty() ? ""
                          : fmt::format(", and a gradient of unit {} was the first that was not finite", first_.unit);
  const bool from_the_start = first_.step == 1;
  return fmt::format("{} not finite: the loss of step {} was {}{}. {}", steps, first_.step, first_.loss, where,
                     from_the_start ? "It was so from the first step: look at the weights that the run starts from, at "
                                      "the data, and at the precision."
                                    : "Go on from a checkpoint before it with a lower --lr, a warm-up, or "
                                      "gradient_clipping; in fp16 try bf16.");
}

}  // namespace shoal::train
