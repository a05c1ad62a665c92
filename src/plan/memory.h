// How many bytes a rank will hold. Pure; the engine allocates by the same functions.
#pragma once

#include <cstdint>
#include <vector>

#include "layout/stage.h"
#include "plan/state_chunks.h"
#include "plan/weight_shards.h"
#include "schedule/gather_schedule.h"
#include "shoal/memory_plan.h"

namespace shoal {

// What the optimizer keeps beside the weight, per element.
size_t master_nbytes(DType weight_dtype);  // 0 for fp32, 2 for bf16 (the remainder), 4 for fp16

struct MemoryOptions {
  GradientOptions gradients;  // its stage is the run's stage
  int moments = 2;            // fp32 numbers per element that the optimizer keeps
  int reduce_slots = 2;       // units whose gradients are on their way at one time
  GatherLimits gather = {};
  ShardOptions shards = {};   // tier of sharded weights
  ChunkOptions offload = {};  // tier, ratio and chunk size of the states
  int disk_buffers = 4;
  size_t state_ring = 0;  // device memory for states of the host that pass through it; 0: the host updates them
  bool on_gpu = false;
};

// The disk is read and written in whole pages.
inline constexpr size_t kDiskPage = 4096;
inline size_t in_pages(size_t nbytes) { return (nbytes + kDiskPage - 1) / kDiskPage * kDiskPage; }
// The buffers that chunks of these sizes pass through, no more than there are chunks: chunk i through buffer i modulo
// their number, which is as large as the largest of its chunks.
std::vector<size_t> disk_buffer_sizes(const std::vector<size_t>& chunk_nbytes, int wanted);

// Of one flat on one rank.
int64_t weight_numel(const FlatLayout& flat, int stage);
int64_t kept_gradient_numel(const FlatLayout& flat, const GradientOptions& options);
int64_t state_numel(const FlatLayout& flat, int stage);

// Of one unit on one rank.
size_t slot_nbytes(const UnitLayout& unit, const GradientOptions& options);  // what it puts into a reduce slot
int64_t gathered_numel(const UnitLayout& unit, int stage);                   // what it gathers
// The bytes of it that need memory of their own, in whole granules: none in a world of one, unless shards are moved:
// from the host to a GPU, or from the disk.
size_t gathered_nbytes(const UnitLayout& unit, int stage, bool moved = false);
// Whether shards of that tier are.
inline bool moves_shards(Tier tier, bool on_gpu) { return tier == Tier::disk || (on_gpu && tier != Tier::device); }
// The weights of the unit that come to a GPU from the host to be updated.
size_t fetched_weight_nbytes(const UnitLayout& unit, int stage);

// The arena hands out memory in granules: a multiple of every page size in use.
inline constexpr size_t kArenaGranule = 64 * 1024;

// The largest number of arena bytes live at one time when units are used in the declared order, forward and backward.
// `moved` says of each unit what gathered_nbytes wants to know; empty: of none.
size_t largest_live_nbytes(const ModelLayout& layout, int stage, const GatherLimits& limits,
                           const std::vector<bool>& moved = {});

MemoryPlan plan_memory(const ModelLayout& layout, const MemoryOptions& options);

}  // namespace shoal
