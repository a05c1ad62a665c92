// What became of a step: at once, or later.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace shoal {

struct StepResult {
  bool boundary = false;      // false: one more micro-step to accumulate; no norm, nothing applied
  bool applied = false;       // false at a boundary: skipped, a gradient was not finite
  double grad_norm = 0;       // global L2 norm before clipping, without the loss scale
  double loss_scale = 1;      // that this step was taken with
  std::vector<double> lrs;    // of each parameter group, that this step was taken with
  int64_t applied_steps = 0;  // so far
  int64_t skipped_steps = 0;  // so far
  std::string overflow_unit;  // where a gradient was not finite
};

// A step whose result is read when somebody asks for it. See Engine::step_later.
class PendingStep {
 public:
  // Whether result() would return at once.
  bool known() const;
  // Waits until the step is decided. Throws what Engine::step would have thrown. The engine lives, or the result was
  // read before.
  const StepResult& result() const;

  struct State;
  explicit PendingStep(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;  // shared with the engine, which reads the results of steps in their order
};

}  // namespace shoal
