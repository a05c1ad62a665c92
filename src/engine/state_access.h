// The engine's state as runs of named parameters, for checkpoints: which runs this rank owns and keeps, and their fp32
// values. Moves no bytes between ranks.
#pragma once

#include <vector>

#include "engine/blueprint.h"
#include "layout/flat_layout.h"
#include "optim/kept_states.h"
#include "shard/gradients.h"
#include "shard/weights.h"
#include "shoal/engine_state.h"

namespace shoal {

class StateAccess {
 public:
  StateAccess(const Blueprint& blueprint, const ModelLayout& layout, KeptStates& states, Weights& weights);

  const std::vector<ParamInfo>& params() const { return params_; }
  std::vector<StateRun> owned() const;
  std::vector<StateRun> kept() const;
  // Throws if somebody replaced, moved or cast the parameter: its values are not those of the state.
  void check_unchanged(const StateRun& part) const;
  void read(const StateRun& part, float* values) const;
  void write(const StateRun& part, const float* values);
  // Part of a gradient, of what this rank owns or keeps of a trained weight.
  void read_gradient(const StateRun& part, const Gradients& gradients, float* values) const;
  void write_gradient(const StateRun& part, const float* values, Gradients& gradients) const;

 private:
  struct Place {
    int unit = 0;
    int flat = 0;
    int64_t offset = 0;  // of the parameter in its flat
    int64_t numel = 0;
  };

  enum class Share : uint8_t { owned, kept };
  std::vector<StateRun> runs(Share share) const;
  KeptStates::Range range_of(const Place& place, Share share, StateKind kind) const;
  Place place_of(const StateRun& part) const;
  Place trained_place_of(const StateRun& part) const;

  const ModelLayout& layout_;
  KeptStates& states_;
  Weights& weights_;
  std::vector<ParamInfo> params_;
  std::vector<Place> places_;  // of each parameter
};

}  // namespace shoal
