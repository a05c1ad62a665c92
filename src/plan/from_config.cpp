// See from_config.h.
#include "plan/from_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "plan/ring_layout.h"
#include "shoal/error.h"

namespace shoal {

namespace {

// Gradients are cut over ranks from stage 2 on.
bool sends_sums(const Config& config) { return config.zero.quantized_gradients && config.zero.stage >= 2; }

// The key that asks for the ranks of a host; "": none does.
std::string key_of_hosts(const Config& config) {
  if (config.shoal.shard_size == kShardByHost) return "config shoal.shard_size";
  if (config.zero.mics_hierarchical_gather) return "config zero_optimization.mics_hierarchical_params_gather";
  const bool has_groups = config.zero.mics_shard_size > 0 || config.shoal.shard_size > 0 || keeps_second_copy(config);
  if (sends_sums(config) && !has_groups) return "config zero_optimization.zero_quantized_gradients";
  return "";
}

const char* key_of_copies(const Config& config) {
  return config.zero.mics_shard_size > 0 ? "config zero_optimization.mics_shard_size" : "config shoal.shard_size";
}

void check_divides(const char* place, int ranks, int world) {
  if (world % ranks == 0) return;
  throw Error(place, fmt::format("groups of {} ranks do not divide the {} ranks that there are. Give a number that "
                                 "divides them, or start another number of ranks.",
                                 ranks, world));
}

Mesh mesh_of_axes(const std::vector<Axis>& wanted) {
  std::vector<Axis> axes;
  for (const Axis& axis : wanted) {
    if (axis.size > 1 || axis.name == kShard) axes.push_back(axis);
  }
  return Mesh(std::move(axes));
}

}  // namespace

int ranks_of_a_copy(const Config& config, int world) {
  if (config.zero.mics_shard_size > 0) return config.zero.mics_shard_size;
  if (config.shoal.shard_size != kShardByHost) return config.shoal.shard_size;
  return config.shoal.ranks_per_host > 0 ? config.shoal.ranks_per_host : world;
}

bool keeps_second_copy(const Config& config) { return config.zero.stage == 3 && config.zero.hpz_partition_size > 1; }

Mesh mesh_of(const Config& config, int world) {
  if (keeps_second_copy(config)) {
    const int ranks = config.zero.hpz_partition_size;
    check_divides("config zero_optimization.zero_hpz_partition_size", ranks, world);
    return mesh_of_axes(
        {{.name = std::string(kReplica), .size = world / ranks}, {.name = std::string(kShard), .size = ranks}});
  }
  const int ranks = ranks_of_a_copy(config, world);
  const int in_host = config.shoal.ranks_per_host;
  if (ranks == 0 && sends_sums(config) && in_host > 0 && world % in_host == 0) {
    // Everything is cut over the world; the axes say where gradients are added up first.
    return mesh_of_axes(
        {{.name = std::string(kReplica), .size = world / in_host}, {.name = std::string(kShard), .size = in_host}});
  }
  if (ranks == 0 || config.zero.stage == 0) return {world};
  check_divides(key_of_copies(config), ranks, world);
  int span = 1;
  if (config.zero.stage == 3 && config.zero.mics_hierarchical_gather && in_host > 0 && in_host < ranks) {
    if (ranks % in_host != 0) {
      throw Error(
          "config zero_optimization.mics_hierarchical_params_gather",
          fmt::format("groups of {} ranks are not whole hosts of {}. Give a number of ranks that the ranks of a "
                      "host divide, or remove the key.",
                      ranks, in_host));
    }
    span = ranks / in_host;
  }
  return mesh_of_axes({{.name = std::string(kReplica), .size = world / ranks},
                       {.name = std::string(kSpan), .size = span},
                       {.name = std::string(kShard), .size = ranks / span}});
}

Stage stage_of(const Config& config) {
  Stage stage = config.zero.stage;
  if (ranks_of_a_copy(config, 1) == 0) return stage;
  for (Over* over : {&stage.row.weights, &stage.row.gradients, &stage.row.states}) {
    if (*over == Over::world) *over = Over::shard;
  }
  return stage;
}

Config with_hosts(const Config& config, const std::vector<int>& hosts) {
  Config known = config;
  known.shoal.ranks_per_host = 0;
  if (hosts.empty()) return known;
  std::vector<int> sizes;  // of runs of ranks on one host
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    if (rank == 0 || hosts[rank] != hosts[rank - 1]) sizes.push_back(0);
    ++sizes.back();
  }
  const bool are_runs = std::set<int>(hosts.begin(), hosts.end()).size() == sizes.size();
  const bool are_even = std::all_of(sizes.begin(), sizes.end(), [&](int size) { return size == sizes[0]; });
  if (are_runs && are_even) {
    known.shoal.ranks_per_host = sizes[0];
    return known;
  }
  const std::string place = key_of_hosts(config);
  if (place.empty()) return known;
  constexpr size_t kMostTold = 64;
  const std::vector<int> told(hosts.begin(),
                              hosts.begin() + static_cast<std::ptrdiff_t>(std::min(hosts.size(), kMostTold)));
  throw Error(place,
              fmt::format("asks for the ranks of a host, and {}: rank by rank the hosts are {}{}. Start as many ranks "
                          "on every host, one host after the other, or give a number.",
                          are_runs ? "hosts have different numbers of them" : "they do not follow each other",
                          fmt::join(told, " "), told.size() < hosts.size() ? " ..." : ""));
}

LayoutOptions layout_options(const Config& config, int world) {
  return {.mesh = mesh_of(config, world),
          .persistence_threshold = config.zero.param_persistence_threshold,
          .model_persistence_threshold = config.zero.model_persistence_threshold};
}

namespace {

// Masters of 16 bits have gradients of 16 bits, unless told.
std::optional<DType> accumulation_dtype(const Config& config) {
  if (config.grad_accum_dtype || !has_narrow_masters(config)) return config.grad_accum_dtype;
  return dtype_of(config.precision);
}

}  // namespace

GradientOptions gradient_options(const Config& config) {
  const BatchConfig& batch = config.batch;
  const int64_t leaves = std::max<int64_t>(1, batch.train_batch_size / std::max<int64_t>(1, batch.micro_batch_size));
  const int64_t group = config.shoal.fold_group;
  return {.stage = stage_of(config),
          .accumulation_steps = config.batch.accumulation_steps,
          .reproducible = config.shoal.reproducible,
          .communication_dtype = config.communication_dtype,
          .accumulation_dtype = accumulation_dtype(config),
          .fold_group = group < leaves ? group : 0,  // one that holds all is no group
          .data_ranks = static_cast<int>(std::max<int64_t>(1, leaves / batch.accumulation_steps)),
          .sum_bits = sends_sums(config) ? config.shoal.quantized_gradient_bits : 0,
          .keeps_errors = sends_sums(config) && config.zero.error_feedback >= 0};
}

// Without overlap every gather is waited for at once, so none may run ahead: a rank would wait for peers that have not
// come so far. Weights that come from the host or the disk come a unit ahead: no bucket is worth the time that they
// take.
GatherLimits gather_limits(const Config& config) {
  const int64_t ahead = config.zero.overlap_comm ? config.zero.prefetch_bucket_size : 0;
  return {.prefetch_numel = ahead,
          .one_ahead = ahead > 0 && config.zero.offload_param.tier_in_use() != Tier::device,
          .max_live_numel = config.zero.max_live_parameters};
}

GatherLimits gather_limits(const Config& config, const ModelLayout& layout) {
  const ShardOptions shards = shard_options(config);
  GatherLimits limits = gather_limits(config);
  limits.buffer_of = shard_buffers(place_shards(layout, shards), shards.buffers);
  return limits;
}

int reduce_slots(const Config& config) { return config.zero.overlap_comm ? 2 : 1; }

int moments_of(const OptimizerConfig& config) {
  const OptimizerRow& row = optimizer_row(config.kind);
  return row.states_need_momentum && config.momentum == 0 ? 0 : row.states();
}

DType moment_dtype(const Config& config) {
  const bool as_masters = !config.optimizer.fp32_states && config.bf16_masters;
  return config.bf16_optimizer_states || as_masters ? DType::bf16 : DType::f32;
}

bool has_narrow_masters(const Config& config) { return config.bf16_masters || config.fp16.master_weights_and_grads; }

size_t state_ring_nbytes(const Config& config) {
  if (config.shoal.offload_update == OffloadUpdate::host) return 0;
  const int64_t wanted = config.shoal.offload_ring_size;
  return wanted > 0 ? static_cast<size_t>(wanted) : kRingBegins;
}

ChunkOptions chunk_options(const Config& config, int rank) {
  const OffloadConfig& offload = config.zero.offload_optimizer;
  return {.stage = stage_of(config),
          .rank = rank,
          .moments = moments_of(config.optimizer),
          .moment_dtype = moment_dtype(config),
          .narrow_masters = has_narrow_masters(config),
          .tier = offload.tier_in_use(),
          .ratio = offload.ratio,
          .disk_ratio = config.shoal.offload_disk_ratio,
          .chunk_numel = config.shoal.offload_chunk_size};
}

namespace {

// Unless told, gradients move where states are in host memory and only the host updates.
bool moves_gradients(const Config& config) {
  switch (config.shoal.offload_gradients) {
    case OffloadGradients::on: return true;
    case OffloadGradients::off: return false;
    case OffloadGradients::automatic: break;
  }
  return config.shoal.offload_update == OffloadUpdate::host &&
         config.zero.offload_optimizer.tier_in_use() == Tier::host;
}

}  // namespace

HostFlats updated_by_host_alone(const ModelLayout& layout, const Config& config) {
  return updated_by_host_alone(layout, cut_states(layout, chunk_options(config, 0)), state_ring_nbytes(config) > 0);
}

HostFlats gradients_of_host(const ModelLayout& layout, const Config& config) {
  return moves_gradients(config) ? updated_by_host_alone(layout, config) : HostFlats{};
}

bool updates_ahead(const Config& config, bool on_gpu) {
  return config.shoal.speculative_update && (!on_gpu || state_ring_nbytes(config) == 0);
}

ShardOptions shard_options(const Config& config) {
  const OffloadConfig& offload = config.zero.offload_param;
  return {.stage = stage_of(config),
          .tier = offload.tier_in_use(),
          .ratio = offload.ratio,
          .max_in_host = offload.max_in_cpu,
          .buffers = offload.buffer_count,
          .second = keeps_second_copy(config),
          .quantized = config.zero.quantized_weights,
          .quantized_frozen = config.zero.quantized_frozen_weights};
}

MemoryOptions memory_options(const Config& config, bool on_gpu) {
  return {.gradients = gradient_options(config),
          .moments = moments_of(config.optimizer),
          .reduce_slots = reduce_slots(config),
          .gather = gather_limits(config),
          .shards = shard_options(config),
          .offload = chunk_options(config, 0),
          .disk_buffers = config.zero.offload_optimizer.buffer_count,
          .state_ring = on_gpu ? state_ring_nbytes(config) : 0,
          .on_gpu = on_gpu,
          .host_gradients = on_gpu && moves_gradients(config),
          .receives_gradients = on_gpu && config.shoal.reduce == Reduce::exact,
          .receive_numel = config.zero.reduce_bucket_size,
          .save_memory = static_cast<size_t>(config.shoal.save_memory),
          .spare_states = updates_ahead(config, on_gpu)};
}

DType dtype_of(Precision precision) {
  switch (precision) {
    case Precision::fp32: return DType::f32;
    case Precision::bf16: return DType::bf16;
    case Precision::fp16: return DType::f16;
  }
  return DType::f32;
}

}  // namespace shoal
