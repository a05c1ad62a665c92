// Parameters whole for the user, for a while, outside the arena.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/blueprint.h"
#include "layout/flat_layout.h"
#include "optim/updater.h"
#include "shard/weights.h"
#include "shoal/engine.h"

namespace shoal {

struct GatherParts {
  const ModelLayout& layout;
  Weights& weights;
  Updater& updater;
  Group& channel;  // for bytes of the model
  Queue& queue;
  std::shared_ptr<Ledger> ledger;
};

// Collective. Gathers the flats that hold the parameters, calls `use`, and with Access::write makes rank 0's values
// everybody's.
void with_gathered(const GatherParts& parts, const std::vector<ParamAddress>& params, Access access,
                   const std::function<void()>& use);

}  // namespace shoal
