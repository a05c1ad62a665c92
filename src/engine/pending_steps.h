// Steps that were taken and whose results nobody has read yet. Results are read in the order of the steps, whoever asks
// for which; see PendingStep in shoal/step_result.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "engine/step_line.h"
#include "optim/stepper.h"
#include "shoal/step_result.h"

namespace shoal {

class PendingSteps {
 public:
  using Tell = std::function<void(const PendingStep::State&)>;
  // The stepper outlives this object, and `alive` expires before it goes. Each step is told when its result is read;
  // what that throws is the step's error. `timing`: see Stopwatch.
  PendingSteps(Stepper& stepper, std::weak_ptr<const void> alive, bool& timing, Tell tell);

  // Before a step is taken: reads what is known, and what would be too many unread.
  void make_room();
  // The stepper has taken a step.
  std::shared_ptr<PendingStep::State> add();
  // A micro-step that ended no step: what stands then.
  std::shared_ptr<PendingStep::State> add_inside();
  void read_all();

 private:
  friend class PendingStep;

  bool is_known(const PendingStep::State& step) const;
  void read(PendingStep::State& step);
  void read_next();

  Stepper& stepper_;
  std::weak_ptr<const void> alive_;
  bool& timing_;
  Tell tell_;
  std::deque<std::shared_ptr<PendingStep::State>> unread_;  // shared with who will ask
};

struct PendingStep::State {
  PendingSteps* home = nullptr;
  std::weak_ptr<const void> alive = {};  // while it is, `home` is
  bool ends_step = true;
  StepTimes times = {};
  std::vector<at::Tensor> losses = {};  // see StepWatch
  bool known = false;
  StepResult result = {};
  std::exception_ptr error = nullptr;  // known, and an error
};

}  // namespace shoal
