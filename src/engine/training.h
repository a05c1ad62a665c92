// The loop of an engine: a unit's forward, backward, step. What happens in a pass is in passes.h, at a boundary in
// optim/stepper.h.
#pragma once

#include <optional>
#include <string>

#include "engine/engine_parts.h"
#include "engine/meters.h"
#include "engine/micro_steps.h"
#include "engine/offload_tuning.h"
#include "engine/out_of_memory.h"
#include "engine/pending_steps.h"
#include "engine/step_watch.h"
#include "engine/user_gathers.h"

namespace shoal {

class Training {
 public:
  using Tensors = Engine::Tensors;

  // All of them outlive this. With `backward_from_outside` hooks of modules report uses, every forward begins with one,
  // and a backward may begin outside.
  Training(EngineParts& parts, UserGathers& gathers, Meters& meters, const EngineOptions& options);

  Tensors run(int unit, const Tensors& inputs, const Engine::Forward& forward);
  // Before the first use of a training pass, where the config has a leaf_seed: the engine's generator draws by it.
  // Elsewhere nothing happens.
  void begin_leaf();
  // Passes draw as this leaf of the step does; nothing: as this rank's own.
  void run_leaf(std::optional<int64_t> leaf) { leaf_ = leaf; }
  // What the generators of the next micro-step are seeded with; nothing: as they stand.
  std::optional<uint64_t> next_leaf_seed() const;
  void evaluate(const std::function<void()>& forward);
  // Before a use of a unit, at every door.
  void check_use(int unit);

  void backward(const at::Tensor& loss);
  // What is back-propagated is to be multiplied by what is returned: 1, unless backwards whose losses the caller has
  // divided by the accumulation steps and others meet in one step.
  double begin_backward(const at::Tensor& root, bool caller_divides);
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
  // The same factor.
  double prepare_backward(bool caller_divides);
  void accumulate_more();
  void tell_gradients();
  at::Tensor backward_scale(const at::Tensor& root, double factor);
  void abandon(int unit);
  void check_unit(int unit) const;
  void check_stream(int unit) const;

  EngineParts& parts_;
  UserGathers& gathers_;
  Meters& meters_;
  OffloadTuning tuning_;
  MicroSteps micro_steps_;
  bool hooked_;
  std::optional<int64_t> leaf_;  // see run_leaf()
  bool loss_is_scaled_ = false;
  bool caller_divides_ = false;    // by the accumulation steps, in this step: its first backward decides
  bool accumulates_more_ = false;  // than the config says, in a step
  bool updates_outside_ = false;   // the last step's update came from outside: it reads states by itself
  bool updating_outside_ = false;
  StepWatch watch_;
  StepTimes times_;
  bool timing_ = false;  // a Stopwatch is running
  PendingSteps pending_;
};

}  // namespace shoal
