// See offload_work.h.
#include "forecast/offload_work.h"

#include <algorithm>

#include "layout/stage.h"
#include "plan/from_config.h"
#include "plan/memory.h"
#include "plan/ring_layout.h"
#include "plan/state_chunks.h"
#include "plan/update_split.h"
#include "plan/weight_shards.h"

namespace shoal::forecast {

namespace {

// Bytes of host memory that an update of one element reads and writes: weight and states both ways, and the gradient.
double update_nbytes(const StateChunk& chunk, size_t weight, size_t gradient) {
  const double states = chunk.numel() > 0 ? static_cast<double>(chunk.nbytes) / static_cast<double>(chunk.numel()) : 0;
  return 2 * states + 2 * static_cast<double>(weight) + static_cast<double>(gradient);
}

}  // namespace

bool OffloadWork::any() const {
  return std::any_of(units.begin(), units.end(), [](const UnitOffload& unit) {
    return unit.streamed + unit.host_numel + unit.disk + unit.weights + unit.disk_weights > 0;
  });
}

OffloadWork offload_work(const ModelLayout& layout, const Config& config, const Cluster& cluster, const Calibration& by,
                         double ring) {
  OffloadWork work;
  work.units.resize(layout.units.size());
  const Stage stage = gradient_options(config).stage;
  const std::vector<StateChunk> chunks = cut_states(layout, chunk_options(config, 0));
  const bool gpu_updates = config.shoal.offload_update != OffloadUpdate::host;
  work.early_gradients = !gradients_of_host(layout, config).empty();

  // The host's share of what would stream, as the run finds it out.
  SplitWork split;
  std::vector<size_t> streamed;
  for (const StateChunk& chunk : chunks) {
    if (chunk.tier != Tier::host || !gpu_updates) continue;
    const FlatLayout& flat = layout.units[static_cast<size_t>(chunk.unit)].flats[static_cast<size_t>(chunk.flat)];
    split.numel += chunk.numel();
    split.state_nbytes += chunk.nbytes;
    split.host_nbytes += static_cast<size_t>(chunk.numel()) * (nbytes_of(flat.dtype) * 2);
    streamed.push_back(chunk.nbytes);
  }
  work.ring = ring > 0 ? ring : static_cast<double>(ring_nbytes(streamed, state_ring_nbytes(config)));
  split.ring_nbytes = static_cast<size_t>(std::min(work.ring, static_cast<double>(split.state_nbytes)));
  const double host_rate = cluster.host.memory_bandwidth * by.host_memory / cluster.gpus_per_host;  // bytes a second
  double share = 0;
  if (config.shoal.offload_update == OffloadUpdate::automatic) {
    share = host_share(split, {.bus_nbytes = cluster.host.bus * by.bus, .host_numel = host_rate / 26});
  }

  for (const StateChunk& chunk : chunks) {
    if (chunk.tier == Tier::device) continue;
    UnitOffload& unit = work.units[static_cast<size_t>(chunk.unit)];
    const FlatLayout& flat = layout.units[static_cast<size_t>(chunk.unit)].flats[static_cast<size_t>(chunk.flat)];
    const auto numel = static_cast<double>(chunk.numel());
    const double by_host = chunk.tier == Tier::disk || !gpu_updates ? 1 : share;
    const size_t weight = nbytes_of(flat.dtype),
                 gradient = nbytes_of(gradient_rule(flat, gradient_options(config)).kept);
    unit.streamed += (1 - by_host) * static_cast<double>(chunk.nbytes);
    unit.host_numel += by_host * numel;
    unit.host_update += by_host * numel * update_nbytes(chunk, weight, gradient);
    unit.host_gradient += by_host * numel * static_cast<double>(gradient);
    unit.host_weight += by_host * numel * static_cast<double>(weight);
    if (chunk.tier == Tier::disk) unit.disk += static_cast<double>(chunk.nbytes);
  }
  if (stage.number == 3) {
    const std::vector<UnitShards> shards = place_shards(layout, shard_options(config));
    for (size_t unit = 0; unit < shards.size(); ++unit) {
      if (shards[unit].tier == Tier::device) continue;
      UnitOffload& of = work.units[unit];
      of.weights = static_cast<double>(shards[unit].nbytes);
      if (shards[unit].tier == Tier::disk) of.disk_weights = of.weights;
      of.host_weight = 0;                                 // they stay where they are
      if (of.host_numel == 0) of.streamed += of.weights;  // the GPU updates: they come to it and go back
    }
  }
  return work;
}

}  // namespace shoal::forecast
