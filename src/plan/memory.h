// How many bytes a rank will hold. Pure; the engine allocates by the same functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "layout/stage.h"
#include "plan/host_flats.h"
#include "plan/state_chunks.h"
#include "plan/weight_shards.h"
#include "schedule/gather_schedule.h"
#include "shoal/memory_plan.h"

namespace shoal {

// What the optimizer keeps beside the weight, per element.
// 0 for fp32, 2 for bf16 (the remainder), 4 for fp16; 0 for all where weights of 16 bits are their own masters.
size_t master_nbytes(DType weight_dtype, bool narrow_masters = false);

struct MemoryOptions {
  GradientOptions gradients;  // its stage is the run's stage
  int moments = 2;            // numbers per element that the optimizer keeps
  int reduce_slots = 2;       // units whose gradients are on their way at one time
  GatherLimits gather = {};
  ShardOptions shards = {};   // tier of sharded weights
  ChunkOptions offload = {};  // dtypes, tier, ratio and chunk size of the states
  int disk_buffers = 4;
  size_t state_ring = 0;  // device memory for states of the host that pass through it; 0: the host updates them
  bool on_gpu = false;
  bool host_gradients = false;  // those of flats that the host updates alone wait in host memory
  // Gradients of other ranks are received before they are added: over NCCL, unless it adds by itself.
  bool receives_gradients = false;
  int64_t receive_numel = 0;  // reduce_bucket_size: so many elements at a time
  size_t save_memory = 0;     // shoal.save_memory
  bool spare_states = false;  // states of the host tier, and their weights, have a second place there
};

// The disk is read and written in whole pages.
inline constexpr size_t kDiskPage = 4096;
inline size_t in_pages(size_t nbytes) { return (nbytes + kDiskPage - 1) / kDiskPage * kDiskPage; }
// The buffers that chunks of these sizes pass through, no more than there are chunks: chunk i through buffer i modulo
// their number, which is as large as the largest of its chunks.
std::vector<size_t> disk_buffer_sizes(const std::vector<size_t>& chunk_nbytes, int wanted);

// Of one flat on one rank.
int64_t weight_numel(const FlatLayout& flat, const Stage& stage);
int64_t kept_gradient_numel(const FlatLayout& flat, const GradientOptions& options);
int64_t state_numel(const FlatLayout& flat, const Stage& stage);
// The sum of a group of leaves that is open between micro-steps.
size_t open_group_nbytes(const FlatLayout& flat, const GradientOptions& options);

// What a rank saves, as its file has it: at most so much, each piece of it in whole pages. `trained_only`: without
// frozen weights.
size_t saved_nbytes(const ModelLayout& layout, const ChunkOptions& states, bool trained_only = false);
// What error feedback keeps of the sums that travel in blocks: a bf16 for each element of a part of them.
size_t error_nbytes(const FlatLayout& flat, const GradientOptions& options, const Mesh& mesh);

// Of one unit on one rank.
size_t slot_nbytes(const UnitLayout& unit, const GradientOptions& options);  // what it puts into a reduce slot
int64_t gathered_numel(const UnitLayout& unit, const Stage& stage);          // what it gathers
// The bytes of it that need memory of their own, in whole granules: none in a world of one, unless shards are moved:
// from the host to a GPU, or from the disk.
size_t gathered_nbytes(const UnitLayout& unit, const Stage& stage, bool moved = false);
// Whether shards of that tier are.
inline bool moves_shards(Tier tier, bool on_gpu) { return tier == Tier::disk || (on_gpu && tier != Tier::device); }
// Whether the update changes shards of gathered flats.
bool changes_shards(const UnitLayout& unit, const Stage& stage);
// Weights off a GPU that it updates come to it for that in pieces, two a chunk of states, through so many slots.
inline constexpr int kFetchedSlots = 8;
inline int64_t fetched_piece_numel(int64_t chunk_numel) { return std::max<int64_t>(1, chunk_numel / 2); }
// A slot for the largest piece; 0 where there are none. `shards` is of each unit.
size_t fetched_slot_nbytes(const ModelLayout& layout, const Stage& stage, const std::vector<UnitShards>& shards,
                           const HostFlats& by_host, int64_t piece_numel);
// Gradients of the unit that wait for the update in host memory, on a GPU's rank.
size_t host_gradient_nbytes(const UnitLayout& unit, const std::vector<bool>& by_host, const GradientOptions& options);
// Places on the GPU through which those pass, each for one unit: one in use, one on its way out, and, where later
// micro-steps add to them, one on its way in.
int gradient_berths(const GradientOptions& options);

// Memory of the device in which other ranks' gradients are received, the largest flat's.
size_t receive_nbytes(const ModelLayout& layout, const MemoryOptions& options);

// fp32 sums on their way from one hop of a reduction to the next, the largest flat's.
size_t sums_nbytes(const ModelLayout& layout, const GradientOptions& options);

// The arena hands out memory in granules: a multiple of every page size in use.
inline constexpr size_t kArenaGranule = 64 * 1024;

// The largest number of arena bytes live at one time when units are used in the declared order, forward and backward.
// `moved` says of each unit what gathered_nbytes wants to know; empty: of none.
size_t largest_live_nbytes(const ModelLayout& layout, const Stage& stage, const GatherLimits& limits,
                           const std::vector<bool>& moved = {});

MemoryPlan plan_memory(const ModelLayout& layout, const MemoryOptions& options);

}  // namespace shoal
