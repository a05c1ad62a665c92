// The two ends of a checkpoint without the engine: what is saved, and what is filled. Tests and imports make their own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "shoal/engine_state.h"

namespace shoal::checkpoint {

// In what a run keeps its states between steps; nothing more is saved of them.
struct KeptDTypes {
  DType moments = DType::f32;
  bool narrow_masters = false;  // trained weights of 16 bits have no fp32 master
};

// What one rank saves.
struct StateSource {
  std::vector<ParamInfo> params;
  std::vector<StateRun> runs;                              // of all ranks together: everything, once
  std::function<void(const StateRun&, float*)> read = {};  // any part of a run
  EngineProgress progress = {};
  std::string config = {};    // JSON; "": none
  bool weights_only = false;  // training starts here: no moments, no progress
  KeptDTypes kept = {};
};

// What one rank must be given.
struct StateSink {
  std::vector<ParamInfo> params;
  std::vector<StateRun> runs;
  std::function<void(const StateRun&, const float*)> write = {};  // any part of a run
  KeptDTypes kept = {};
};

}  // namespace shoal::checkpoint
