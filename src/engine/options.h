// What a config means to the parts that the engine wires together.
#pragma once

#include <vector>

#include "engine/passes.h"
#include "shard/gradients.h"
#include "shoal/config.h"
#include "shoal/engine.h"

namespace shoal {

ReduceOptions reduce_options(const Config& config);

// What the sum over all leaves of a step is multiplied by: one over their number, or over the data ranks alone where
// the caller has divided losses by the accumulation steps. (A predivide factor and prescale_gradients say how much of
// that comes before the sum. In fp32 it makes no difference, so all of it follows.)
float gradient_factor(const Config& config, const Mesh& mesh, bool caller_divides);

PassOptions pass_options(const Config& config, const ModelLayout& layout);

// Of each parameter group: its own value, or the config's.
std::vector<double> group_lrs(const EngineOptions& options, const Config& config);
std::vector<double> group_weight_decays(const EngineOptions& options, const Config& config);

// Throws when the config's batch sizes were derived for another number of data ranks.
void check_batch(const Config& config, const Mesh& mesh);

// Gradients that are to leave a GPU can.
void check_gradients(const ModelLayout& layout, const Config& config, at::Device device);
// States that are to be updated ahead of the decision can be.
void check_speculation(const ModelLayout& layout, const Config& config, at::Device device);

}  // namespace shoal
