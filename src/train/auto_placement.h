// The config's placement "auto": looks at the memory there is and fills in the offload sections.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "shoal/group.h"
#include "train/prepare.h"

namespace shoal::train {

// Ranks of this host, as the launchers say it; all ranks when none does.
int local_ranks(int world);

// Memory that can be had without paging, from the text of /proc/meminfo; 0 where it does not say. Within a container's
// limit, where `limit` and `used` are the numbers of its memory.max and memory.current.
size_t available_nbytes(const std::string& meminfo, const std::string& limit = "", const std::string& used = "");

// The run's config, with the tiers that the memory of all ranks allows where it asks for that; the run says so among
// its choices. Without a GPU there is one memory, and the offload sections stand. Every rank calls it.
const Config& carry_out_placement(PreparedRun& run, Group& world, at::Device device);

}  // namespace shoal::train
