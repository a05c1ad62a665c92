// The config's placement "auto": looks at the memory there is and fills in the offload sections.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <vector>

#include "layout/flat_layout.h"
#include "shoal/config.h"
#include "shoal/group.h"
#include "shoal/memory_plan.h"
#include "shoal/unit.h"

namespace shoal {

// What a micro-step keeps beside the model states.
struct ActivationRoom {
  size_t device = 0, host = 0;
};

struct PlacedConfig {
  Config config;
  MemoryPlan plan;    // empty where the config does not ask
  std::string words;  // what was decided and why; "" where the config does not ask
};
// With the tiers that the memory of all ranks allows. Without a GPU there is one memory, and states that it cannot hold
// go to disk. Every rank calls it.
PlacedConfig carry_out_placement(const Config& config, const ModelLayout& layout, const ActivationRoom& activations,
                                 Group& world, at::Device device);

// For an engine whose activations nobody knows: within the config's budgets, which are those of model states then.
// Throws where it has none.
PlacedConfig carry_out_placement(const Config& config, const std::vector<Unit>& units, size_t groups, Group& world,
                                 at::Device device);

}  // namespace shoal
