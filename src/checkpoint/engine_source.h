// An engine as what is saved. save_checkpoint and CheckpointSaver use it.
#pragma once

#include "checkpoint/state_ends.h"
#include "shoal/checkpoint.h"

namespace shoal::checkpoint {

// Refers to the engine.
StateSource source_of(const Engine& engine);

// The options, with what the checkpoint does not hold said in them and, by rank 0, on stderr.
SaveOptions with_accumulated(const Engine& engine, const Group& world, SaveOptions options);

}  // namespace shoal::checkpoint
