// The config's placement "auto": looks at the memory there is and fills in the offload sections.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "shoal/group.h"
#include "train/prepare.h"

namespace shoal::train {

// Memory that can be had without paging, from the text of /proc/meminfo; 0 where it does not say.
size_t available_nbytes(const std::string& meminfo);

// The run's config, with the tiers that rank 0's memory allows where it asks for that; the run says so among its
// choices. On a rank without a GPU there is one memory, and nothing is moved. Every rank calls it.
const Config& carry_out_placement(PreparedRun& run, Group& world, at::Device device);

}  // namespace shoal::train
