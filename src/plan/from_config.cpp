// See from_config.h.
#include "plan/from_config.h"

#include "plan/ring_layout.h"

namespace shoal {

Mesh mesh_of(const Config& /*config*/, int world) { return {world}; }

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
  return {.stage = config.zero.stage,
          .accumulation_steps = config.batch.accumulation_steps,
          .reproducible = config.shoal.reproducible,
          .communication_dtype = config.communication_dtype,
          .accumulation_dtype = accumulation_dtype(config)};
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
  return {.stage = config.zero.stage,
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
  return {.stage = config.zero.stage,
          .tier = offload.tier_in_use(),
          .ratio = offload.ratio,
          .max_in_host = offload.max_in_cpu,
          .buffers = offload.buffer_count};
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
