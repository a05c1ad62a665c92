// Fills weights and masters from the user's tensors when an engine is built, unit by unit, so that the peak is the
// shards and one unit. Also reads parameters that an earlier engine left sharded.
#pragma once

#include <vector>

#include "engine/blueprint.h"
#include "layout/flat_layout.h"
#include "optim/updater.h"
#include "shard/weights.h"
#include "shoal/group.h"

namespace shoal {

// Collective. Afterwards the tensors of the blueprint are attached to, or released into, the weights.
void take_over(const Blueprint& blueprint, const ModelLayout& layout, bool broadcast, Weights& weights,
               Updater& updater, Group& channel);

}  // namespace shoal
