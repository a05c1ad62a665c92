// `--recompute auto`: looks at the memory there is and keeps of activations what fits.
#pragma once

#include <ATen/core/Tensor.h>

#include "shoal/group.h"
#include "train/prepare.h"

namespace shoal::train {

// Sets what the run's model computes again, the same on every rank, and says so among the run's choices. Where
// placement is automatic too, states stay on the device before activations do: nothing is moved for their sake that
// recompute could have spared. Every rank calls it.
void carry_out_recompute(PreparedRun& run, Group& world, at::Device device);

}  // namespace shoal::train
