// For bindings, whose model runs by itself and reports what it does: hooks on modules, a backward that is somebody
// else's, gathers that begin in one call and end in another. A C++ loop needs none of it. A view is a cheap value that
// refers to its engine and owns nothing: use it while the engine lives.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace shoal {

class Engine;
class EngineImpl;

// The gradient of a parameter, counted in its unit, both from 0; valid inside the call.
using GradientWatch = std::function<void(int unit, int param, const at::Tensor& grad)>;

class HooksView {
 public:
  using Tensors = std::vector<at::Tensor>;

  // Engine::run in two halves. Unlike run(), the outermost use without gradients is an evaluation of its own, and
  // forwards that torch.utils.checkpoint repeats are understood.
  void enter(int unit, const Tensors& inputs) const;
  void exit(int unit, const Tensors& outputs) const;
  // Instead of exit(), when the use ended with an exception.
  void abandon(int unit) const;
  // A parameter of the unit is read, and no use of the unit is open: it becomes live, in forward until its
  // exit(), in backward until backward is over. The inputs are those of the use that is open.
  void read_outside_uses(int unit, const Tensors& inputs) const;

  // Engine::backward in two halves: between them the caller back-propagates what it likes, scaled by the state's
  // loss_scale() and by what is returned. With `root` it is that alone, once, and reductions go on beside it; without,
  // they begin in finish_backward(). Who divides by the accumulation steps: the caller, before, or with
  // `engine_divides` the engine, at the end of the step. What is returned is 1, unless backwards of both kinds meet in
  // one step.
  double begin_backward(const at::Tensor& root = {}, bool engine_divides = false) const;
  void finish_backward() const;
  // Instead of finish_backward(), when the caller's backward ended with an exception: the engine goes no further.
  void abandon_backward(const std::string& because) const;
  // Between begin_backward() and its end.
  bool in_backward() const;
  // With EngineOptions::backward_from_outside: the loss that is back-propagated next was multiplied by the loss scale.
  // The engine divides what comes from outside by the accumulation steps.
  void expect_scaled_loss() const;

  // Throws if somebody replaced, moved or cast a parameter: for who saves parameters themselves.
  void check_unchanged() const;

  // Engine::with_gathered in two halves, which may nest and may stay open while units that are whole are used.
  // `written_by`: the rank whose values all take.
  int begin_gathered(const std::vector<std::string>& names) const;
  void finish_gathered(int id, std::optional<int> written_by = {}) const;

  // With the config's leaf_seed: what to seed generators with for a training forward that begins now, the n-th since
  // the last backward, counted from 0. The same at every number of ranks. Nothing: leave them alone.
  std::optional<uint64_t> leaf_seed(int64_t forward) const;

  // Until it is called with nothing: passes draw the random numbers of this leaf of the step, counted over all ranks,
  // in place of this rank's own. For who runs other ranks' leaves, and drops what comes of it.
  void run_leaf(std::optional<int64_t> leaf) const;
  // Calls `watch` with each gradient of this rank's micro-steps as it comes, before ranks add theirs up; an empty one
  // ends it. A parameter that is used in several places may have several.
  void watch_gradients(GradientWatch watch) const;

  // Adam's and Lion's betas from the next step on, instead of the schedule's and the config's.
  void set_betas(double beta1, double beta2) const;

 private:
  friend class Engine;
  explicit HooksView(EngineImpl& engine) : engine_(&engine) {}

  EngineImpl* engine_;
};

}  // namespace shoal
