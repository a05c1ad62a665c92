// An engine as what is saved. save_checkpoint and CheckpointSaver use it.
#pragma once

#include "checkpoint/state_ends.h"
#include "shoal/checkpoint.h"

namespace shoal::checkpoint {

// Refers to the engine. What the options ask for of it.
StateSource source_of(const Engine& engine, const SaveOptions& options = {});

// The options, with what the checkpoint does not hold said in them and, of micro-steps by rank 0, on stderr.
SaveOptions with_what_is_left_out(const Engine& engine, const Group& world, SaveOptions options);

}  // namespace shoal::checkpoint
