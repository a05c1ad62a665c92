// Saving without the engine: what save_checkpoint and imports share.
#pragma once

#include <string>

#include "checkpoint/state_ends.h"
#include "shoal/checkpoint.h"

namespace shoal::checkpoint {

// See save_checkpoint. Every rank calls it with a source of its own.
std::string save_state(const StateSource& source, Group& world, const SaveOptions& options);

}  // namespace shoal::checkpoint
