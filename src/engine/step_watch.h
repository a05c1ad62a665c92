// Ends a run that only skips: too many steps in a row whose loss or gradients are not finite are an error with what is
// known of the first. Holds the losses of a step until its result is read; training.cpp tells it of both.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "optim/nonfinite_steps.h"
#include "shoal/config.h"
#include "shoal/step_result.h"

namespace shoal {

class StepWatch {
 public:
  // `on` false: whoever takes the steps watches them. Each of several ranks knows a loss of its own.
  StepWatch(const Config& config, bool on, int ranks)
      : on_(on && config.shoal.max_nonfinite > 0), steps_(config, most(config), ranks == 1) {}

  // A backward begins from this loss, if that is known and is one number. It comes to host memory behind what the
  // device has to do, and nobody waits.
  void add_loss(const at::Tensor& loss);
  // One begins whose loss is not known; or what came is dropped.
  void forget_losses();
  // Of the micro-steps of a step that is taken; none if one of them is not known.
  std::vector<at::Tensor> take_losses();

  // In the order of the steps, once the result is there, and so are the losses. Throws when it was one too many.
  void see(const StepResult& result, const std::vector<at::Tensor>& losses);

 private:
  static int64_t most(const Config& config) { return config.shoal.max_nonfinite; }

  bool on_;
  NonfiniteSteps steps_;
  std::vector<at::Tensor> losses_;
  bool knows_all_ = true;  // of the losses since the last step
};

}  // namespace shoal
