// The config's placement "auto" in a run, whose activations are known; engine/auto_placement.h decides.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/auto_placement.h"
#include "shoal/group.h"
#include "train/prepare.h"

namespace shoal::train {

// The run's config, with the tiers that the memory of all ranks allows where it asks for that, beside the activations
// of a model that computes these blocks again. Without a GPU there is one memory, and states that it cannot hold go to
// disk. Every rank calls it.
PlacedConfig settle_placement(const PreparedRun& run, const models::RecomputedBlocks& blocks, Group& world,
                              at::Device device);

}  // namespace shoal::train
