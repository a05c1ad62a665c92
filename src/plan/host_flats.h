// Which flats the host updates alone, in place of the GPU that a rank computes on. Nothing of such a flat is needed on
// the GPU for its update: its gradients may wait for it in host memory, and weights that are there stay there. Pure.
#pragma once

#include <vector>

#include "layout/flat_layout.h"
#include "plan/state_chunks.h"

namespace shoal {

// Of each unit, of each flat. Empty: none.
using HostFlats = std::vector<std::vector<bool>>;

// `streams`: states of the host's tier come to the GPU, which updates them.
HostFlats updated_by_host_alone(const ModelLayout& layout, const std::vector<StateChunk>& chunks, bool streams);

inline bool contains(const HostFlats& flats, size_t unit, size_t flat) { return !flats.empty() && flats[unit][flat]; }

}  // namespace shoal
