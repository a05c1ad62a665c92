// On which tiers a rank's optimizer states and weights live when the config leaves it to Shoal: on the GPU what fits;
// what does not, in host memory or else on disk. Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "shoal/config.h"
#include "shoal/memory_plan.h"

namespace shoal {

// What a rank would hold under a config.
using PlanOf = std::function<MemoryPlan(const Config& config)>;

struct Placement {
  Tier optimizer = Tier::device;
  double ratio = 1;        // of the states, that left the device
  double disk_ratio = 1;   // of the states, on disk at most; where the tier is the disk
  bool gradients = false;  // in host memory, and the host updates
  Tier param = Tier::device;
  double param_ratio = 1;  // of the weights, that left the device; where their tier is another
  int64_t max_in_cpu = 0;  // elements of weights that stay in host memory; where their tier is the disk
  MemoryPlan plan = {};

  bool uses_disk() const { return optimizer == Tier::disk || param == Tier::disk; }
};
// The config under a placement.
Config with(const Config& config, const Placement& placement);
// "offload_optimizer, ratio 0.42, and offload_param"; "" where everything is on the device.
std::string settings_of(const Placement& placement);
// Words for the command line that make of this config what with() makes of it at stage 3. Where the disk is new,
// "<folder>" stands for the path, which no shell takes for one.
std::string flags_of(const Config& config, const Placement& placement);

// The placements that fit into so many bytes of the device, the least that must leave it first: nothing, states,
// gradients too (unless the config keeps them, or lets the GPU update), as few weights as must be (at stage 3), after
// all states: a weight that is away crosses the bus for every pass, a state once a step; to the host before the disk,
// which is there for states where offload_optimizer names a path, for weights where offload_param does. Whatever tiers
// the config itself names.
std::vector<Placement> placements_within(size_t device, const Config& config, const PlanOf& plan_of);

// Bytes that one rank may take.
struct Room {
  size_t device = 0;
  size_t host = 0;
};
// As place(), and nothing where none fits.
std::optional<Placement> find_place(const Room& room, size_t activations, const Config& config, const PlanOf& plan_of);
// The first that fits the host too, with `activations` beside it on the device; where the host is too small, the disk
// takes as little as it must: of states, and then of weights. Throws shoal::Error with what is missing where none does.
Placement place(const Room& room, size_t activations, const Config& config, const PlanOf& plan_of);
// The config of a placement whose budget is that of model states alone: the ring of states takes what is left of it.
Config with_ring_within(size_t device, const Config& config, const PlanOf& plan_of);
// Without a GPU there is one memory: all in it, or the least share of the states, in hundredths, on disk. Weights stay
// where the config has them. Throws as place() does.
Placement place_without_gpu(size_t host, size_t activations, const Config& config, const PlanOf& plan_of);

}  // namespace shoal
