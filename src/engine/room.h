// How much memory a rank may take, of the machine that it finds itself on.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "plan/placement.h"
#include "shoal/config.h"
#include "shoal/group.h"

namespace shoal {

// Ranks of this host, as the launchers say it; all ranks when none does.
int local_ranks(int world);

// Memory that can be had without paging, from the text of /proc/meminfo; 0 where it does not say. Within a container's
// limit, where `limit`, `used` and `stat` are the texts of its memory.max, memory.current and memory.stat: pages of
// files that nobody uses count as used there, and are given up when memory is wanted.
size_t available_nbytes(const std::string& meminfo, const std::string& limit = "", const std::string& used = "",
                        const std::string& stat = "");

// Of what is free on this host now a little less than this rank's part. A rank's own number.
size_t free_for_rank(int world);

// What each rank may take (plan/placement.h says what a Room is): the config's budgets, or of what is free a little
// less than the rank's part. The same on all ranks, so that they decide alike: the least that one of them has. Without
// a GPU the device is the host. Every rank calls it.
Room room_of_ranks(const Config& config, Group& world, at::Device device);

}  // namespace shoal
