// Which GPU each rank of a group uses.
#pragma once

#include <string>
#include <vector>

#include "comm/gpu/gpu_route.h"
#include "shoal/group.h"

namespace shoal {

// A text for each rank, equal where two share a GPU. Every rank calls it, with its own device.
std::vector<std::string> gpus_of_ranks(Group& host, int device);
// Where each rank sits, for gpu_route.h. Every rank calls it, with its own device.
std::vector<GpuSeat> gpu_seats_of_ranks(Group& host, int device);
// How many of the texts are this rank's.
int ranks_that_share(const std::vector<std::string>& gpus, int rank);

}  // namespace shoal
