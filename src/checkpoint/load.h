// Loading without the engine.
#pragma once

#include <string>

#include "checkpoint/manifest.h"
#include "checkpoint/state_ends.h"
#include "shoal/checkpoint.h"

namespace shoal::checkpoint {

struct Restored {
  LoadedCheckpoint loaded;
  bool weights_only = false;
  EngineProgress progress;  // random_state: this rank's, if the world has as many ranks as saved it; else empty
};

// See load_checkpoint. Every rank calls it with a sink of its own. Where it throws, the sink may be filled in part.
Restored load_state(const StateSink& sink, Group& world, const std::string& path);

// The type of the optimizer in an effective config, "AdamW"; "" when there is none.
std::string optimizer_in(const std::string& config);

}  // namespace shoal::checkpoint
