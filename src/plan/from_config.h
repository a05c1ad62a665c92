// What a Config means to layout, gradients, schedule and plan. The engine builds by these, the planner counts by them.
#pragma once

#include "layout/flat_layout.h"
#include "layout/stage.h"
#include "plan/memory.h"
#include "schedule/gather_schedule.h"
#include "shoal/config.h"

namespace shoal {

// Ranks that hold one copy of the model's states, where the config names a number; 0: all of them.
int ranks_of_a_copy(const Config& config, int world);
// Where so many ranks stand; all of them take samples of their own. Throws where the config's groups do not divide
// them.
Mesh mesh_of(const Config& config, int world);
// What the run cuts over which ranks.
Stage stage_of(const Config& config);
// Whether each group of the mesh keeps a second copy of gathered weights.
bool keeps_second_copy(const Config& config);
// The config with what is known of the hosts of the ranks; none known: all are on one. Throws where the config asks for
// the ranks of a host, and hosts have different numbers of them, or ranks that do not follow each other.
Config with_hosts(const Config& config, const std::vector<int>& hosts);

LayoutOptions layout_options(const Config& config, int world);
GradientOptions gradient_options(const Config& config);
// Without the buffers of shards on disk, which take the layout.
GatherLimits gather_limits(const Config& config);
GatherLimits gather_limits(const Config& config, const ModelLayout& layout);
// Units whose gradients may be on their way at one time.
int reduce_slots(const Config& config);
// Numbers per element that an optimizer keeps beside the weight, and their dtype.
int moments_of(const OptimizerConfig& config);
DType moment_dtype(const Config& config);
// Whether weights of 16 bits are their own masters.
bool has_narrow_masters(const Config& config);
// GPU memory through which states of the host may pass, as ring_nbytes() takes it; 0: none, the host updates them.
size_t state_ring_nbytes(const Config& config);
// How this rank's states are cut and placed.
ChunkOptions chunk_options(const Config& config, int rank);
// The flats that the host updates alone for a GPU, and those of them whose gradients wait in host memory.
HostFlats updated_by_host_alone(const ModelLayout& layout, const Config& config);
HostFlats gradients_of_host(const ModelLayout& layout, const Config& config);
// Whether the host updates states in its memory before the step is decided, and has spare places for them.
bool updates_ahead(const Config& config, bool on_gpu);
// Where this rank's shards of weights lie.
ShardOptions shard_options(const Config& config);
// On a rank that computes on a GPU, or in host memory.
MemoryOptions memory_options(const Config& config, bool on_gpu = false);

// The dtype that a model computes in.
DType dtype_of(Precision precision);

}  // namespace shoal
