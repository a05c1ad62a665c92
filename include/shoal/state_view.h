// An engine's state: weights, optimizer states and gradients, as runs of elements of named parameters (see
// shoal/engine_state.h), and the few numbers beside them. What checkpoints are made of, and what is read and changed by
// hand. A view is a cheap value that refers to its engine and owns nothing: copy it as you like, and use it while the
// engine lives.
//
//   for (const shoal::StateRun& run : engine.state().owned()) engine.state().read(run, values);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shoal/engine_state.h"

namespace shoal {

class Engine;
class EngineImpl;

// Of an engine that is const: what reads.
class ConstStateView {
 public:
  const std::vector<ParamInfo>& params() const;
  // owned() of all ranks is disjoint and covers everything: what this rank saves. kept() is what it holds and must be
  // given: what it loads.
  std::vector<StateRun> owned() const;
  std::vector<StateRun> kept() const;
  // Any part of such a run. Between passes, also between the micro-steps of a step: then it is that of the last step.
  void read(const StateRun& part, float* values) const;
  // Throws unless it can be read now. Talks to nobody.
  void check_readable(const std::string& place) const;
  // Host memory for a copy of the state, in whole pages, counted as MemoryPlan::save_pictures while it lives; memory
  // that a GPU copies to by itself, on a rank that has one.
  std::shared_ptr<std::byte> picture_memory(size_t nbytes) const;

  // The mean gradients that this rank holds, with the loss scale; after the backward that ends a step, before step().
  // Their runs have the kind of weights.
  // read_gradient() also takes what kept() lists of trained weights, inside an OutsideUpdate.
  std::vector<StateRun> owned_gradients() const;
  void read_gradient(const StateRun& part, float* values) const;
  // Whether the last backward ended a step, and step() has not been called since.
  bool has_gradients() const;
  // Micro-steps that have been accumulated since the last step. What is saved now does not hold them.
  int64_t accumulated() const;

  // Waits for steps that are not read yet, as loss_scale() does where it moves.
  EngineProgress progress() const;
  double loss_scale() const;

 protected:
  friend class Engine;
  explicit ConstStateView(EngineImpl& engine) : engine_(&engine) {}

  EngineImpl* engine_;
};

class StateView : public ConstStateView {
 public:
  // Any part of a run that kept() lists: between steps, and then finish_restore() ends it; or inside an OutsideUpdate.
  void write(const StateRun& part, const float* values) const;
  // Ends a restore: brings the written weights to where they are read. Every rank calls it.
  void finish_restore(const EngineProgress& progress) const;

  // A state of one parameter, any part of a run that kept() lists, changed by hand, also between the micro-steps of a
  // step: gradients that have come stay as they are, and the step is taken from what was written. Every rank then calls
  // finish_edits, once for any number.
  void edit(const StateRun& part, const float* values) const;
  void finish_edits() const;

  // Puts other gradients in their place, with the loss scale, for the norm and the update of the step: each rank writes
  // any part of what kept_gradients() lists. After the backward that ends a step, before step().
  std::vector<StateRun> kept_gradients() const;
  void write_gradient(const StateRun& part, const float* values) const;

 private:
  friend class Engine;
  explicit StateView(EngineImpl& engine) : ConstStateView(engine) {}
};

}  // namespace shoal
