// Fills weights and masters when an engine is built, unit by unit: from the user's tensors (the peak is the shards and
// one unit), from sources that each rank reads for itself, or from what an earlier engine left sharded.
#pragma once

#include <vector>

#include "engine/blueprint.h"
#include "engine/channel.h"
#include "layout/flat_layout.h"
#include "optim/kept_states.h"
#include "shard/weights.h"

namespace shoal {

struct TakeOver {
  const Blueprint& blueprint;
  const ModelLayout& layout;
  Weights& weights;
  KeptStates& states;
  const Channel& channel;
  Queue& queue;
  at::Device device;
};

// Collective. Afterwards the tensors of the blueprint are attached to, or released into, the weights. `broadcast`:
// values that come from tensors are taken from rank 0.
void take_over(const TakeOver& parts, bool broadcast);

}  // namespace shoal
