// The config's placement "auto": looks at the memory there is and fills in the offload sections.
#pragma once

#include <ATen/core/Tensor.h>

#include "shoal/group.h"
#include "train/prepare.h"

namespace shoal::train {

// The run's config, with the tiers that the memory of all ranks allows where it asks for that; the run says so among
// its choices. Without a GPU there is one memory, and the offload sections stand. Every rank calls it.
const Config& carry_out_placement(PreparedRun& run, Group& world, at::Device device);

}  // namespace shoal::train
