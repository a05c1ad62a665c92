// The loop of an engine: a unit's forward, backward, step. What happens in a pass is in passes.h, at a boundary in
// optim/stepper.h.
#pragma once

#include <string>

#include "engine/engine_parts.h"
#include "engine/meters.h"
#include "engine/micro_steps.h"
#include "engine/offload_tuning.h"
#include "engine/out_of_memory.h"
#include "engine/pending_steps.h"
#include "engine/user_gathers.h"

namespace shoal {

class Training {
 public:
  using Tensors = Engine::Tensors;

  // All of them outlive this. `hooked`: hooks of modules report uses, every forward begins with one, and a backward may
  // begin outside.
  Training(EngineParts& parts, UserGathers& gathers, Meters& meters, bool hooked);

  Tensors run(int unit, const Tensors& inputs, const Engine::Forward& forward);
  void evaluate(const std::function<void()>& forward);
  // Before a use of a unit, at every door.
  void check_use(int unit);

  void backward(const at::Tensor& loss);
  void begin_backward(const at::Tensor& root);
  void finish_backward();
  // The loss that is back-propagated next, outside, was multiplied by the loss scale.
  void expect_scaled_loss() { loss_is_scaled_ = true; }

  PendingStep step_later(const OutsideUpdate& update);
  void read_all_steps() { pending_.read_all(); }
  // Waits for steps that may move it.
  double loss_scale();

  MicroSteps& micro_steps() { return micro_steps_; }
  void drop_gradients();
  // Throws unless the gradients of a step are there.
  void await_gradients();
  // Inside an update from outside, which reads the gradients of the step that is being taken.
  bool updating_outside() const { return updating_outside_; }

  OutOfMemory out_of_memory(const std::string& phase, const std::string& said) const;

 private:
  // The same update; updating_outside() is true in it.
  OutsideUpdate told_of(const OutsideUpdate& update);
  void begin_outside_backward();
  void prepare_backward();
  void accumulate_more();
  void tell_gradients();
  at::Tensor backward_scale(const at::Tensor& root);
  void check_unit(int unit) const;
  void check_stream(int unit) const;

  EngineParts& parts_;
  UserGathers& gathers_;
  Meters& meters_;
  OffloadTuning tuning_;
  MicroSteps micro_steps_;
  bool hooked_;
  bool loss_is_scaled_ = false;
  bool accumulates_more_ = false;  // than the config says, in a step
  bool updates_outside_ = false;   // the last step's update came from outside: it reads states by itself
  bool updating_outside_ = false;
  StepTimes times_;
  bool timing_ = false;  // a Stopwatch is running
  PendingSteps pending_;
};

}  // namespace shoal
