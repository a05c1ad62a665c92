// See memory.h.
#include "plan/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>

#include "base/text.h"
#include "plan/exchange_pieces.h"
#include "plan/ring_layout.h"
#include "plan/save_memory.h"
#include "schedule/route.h"

namespace shoal {

size_t master_nbytes(DType weight_dtype, bool narrow_masters) {
  if (narrow_masters) return 0;
  switch (weight_dtype) {
    case DType::f32: return 0;
    case DType::bf16: return 2;
    case DType::f16: return 4;
  }
  return 0;
}

int64_t weight_numel(const FlatLayout& flat, const Stage& stage) {
  return numel_over(flat, row_of(flat, stage).weights);
}

int64_t kept_gradient_numel(const FlatLayout& flat, const GradientOptions& options) {
  if (!flat.trainable) return 0;
  return numel_over(flat, row_of(flat, options.stage).gradients);
}

int64_t state_numel(const FlatLayout& flat, const Stage& stage) {
  if (!flat.trainable) return 0;
  return numel_over(flat, row_of(flat, stage).states);
}

size_t open_group_nbytes(const FlatLayout& flat, const GradientOptions& options) {
  if (!flat.trainable || !options.keeps_groups_open() || !gradient_rule(flat, options).every_micro_step) return 0;
  return static_cast<size_t>(numel_over(flat, ways_of(flat, options.stage).summed)) * sizeof(float);
}

size_t saved_nbytes(const ModelLayout& layout, const ChunkOptions& states, bool trained_only) {
  size_t nbytes = 0;
  for (const UnitLayout& unit : layout.units) {
    for (const FlatLayout& flat : unit.flats) {
      if (trained_only && !flat.trainable) continue;
      const bool narrow = !flat.trainable || states.narrow_masters;
      size_t element = narrow ? nbytes_of(flat.dtype) : sizeof(float);
      size_t kinds = 1;
      if (flat.trainable) {
        element += static_cast<size_t>(states.moments) * nbytes_of(states.moment_dtype);
        kinds += static_cast<size_t>(states.moments);
      }
      nbytes += static_cast<size_t>(flat.rank_numel) * element + flat.pieces.size() * kinds * kDiskPage;
    }
  }
  return in_pages(nbytes);
}

size_t error_nbytes(const FlatLayout& flat, const GradientOptions& options, const Mesh& mesh) {
  if (!flat.trainable || !options.keeps_errors) return 0;
  const Route reduce = routes_of(flat, options, mesh).reduce;
  if (!reduce.back().is_quantized()) return 0;
  return static_cast<size_t>(reduce.front().part_numel) * nbytes_of(DType::bf16);
}

size_t slot_nbytes(const UnitLayout& unit, const GradientOptions& options) {
  size_t nbytes = 0;
  for (const FlatLayout& flat : unit.flats) {
    if (!flat.trainable) continue;
    const GradientRule rule = gradient_rule(flat, options);
    if (rule.through_slot) nbytes += static_cast<size_t>(flat.numel) * nbytes_of(rule.wire);
  }
  return nbytes;
}

int64_t gathered_numel(const UnitLayout& unit, const Stage& stage) {
  int64_t numel = 0;
  for (const FlatLayout& flat : unit.flats) {
    if (is_gathered(flat, stage)) numel += flat.numel;
  }
  return numel;
}

size_t gathered_nbytes(const UnitLayout& unit, const Stage& stage, bool moved) {
  size_t nbytes = 0;
  for (const FlatLayout& flat : unit.flats) {
    if (!is_gathered(flat, stage) || (is_alone(flat, stage) && !moved)) continue;
    nbytes += static_cast<size_t>(flat.numel) * nbytes_of(flat.dtype);
  }
  return (nbytes + kArenaGranule - 1) / kArenaGranule * kArenaGranule;
}

bool changes_shards(const UnitLayout& unit, const Stage& stage) {
  return std::any_of(unit.flats.begin(), unit.flats.end(), [&](const FlatLayout& flat) {
    return flat.trainable && is_gathered(flat, stage) && flat.numel > 0;
  });
}

size_t fetched_slot_nbytes(const ModelLayout& layout, const Stage& stage, const std::vector<UnitShards>& shards,
                           const HostFlats& by_host, int64_t piece_numel) {
  size_t largest = 0;
  for (size_t unit = 0; unit < layout.units.size(); ++unit) {
    if (shards[unit].tier == Tier::device) continue;
    const std::vector<FlatLayout>& flats = layout.units[unit].flats;
    for (size_t index = 0; index < flats.size(); ++index) {
      const FlatLayout& flat = flats[index];
      if (!flat.trainable || !is_gathered(flat, stage) || contains(by_host, unit, index)) continue;
      const auto numel = static_cast<size_t>(std::min(weight_numel(flat, stage), piece_numel));
      largest = std::max(largest, numel * nbytes_of(flat.dtype));
    }
  }
  return largest;
}

namespace {

size_t kept_gradient_nbytes(const FlatLayout& flat, const GradientOptions& options) {
  if (!flat.trainable) return 0;
  return static_cast<size_t>(kept_gradient_numel(flat, options)) * nbytes_of(gradient_rule(flat, options).kept);
}

}  // namespace

size_t host_gradient_nbytes(const UnitLayout& unit, const std::vector<bool>& by_host, const GradientOptions& options) {
  size_t nbytes = 0;
  for (size_t flat = 0; flat < unit.flats.size(); ++flat) {
    if (by_host[flat]) nbytes += kept_gradient_nbytes(unit.flats[flat], options);
  }
  return nbytes;
}

int gradient_berths(const GradientOptions& options) { return options.accumulation_steps > 1 ? 3 : 2; }

size_t receive_nbytes(const ModelLayout& layout, const MemoryOptions& options) {
  std::map<std::string_view, size_t> largest;  // each axis has a group with memory of its own
  for (const UnitLayout& unit : layout.units) {
    for (const FlatLayout& flat : unit.flats) {
      for (const Hop& hop : routes_of(flat, options.gradients, layout.mesh).reduce) {
        if (hop.is_quantized()) continue;  // received beside the sums that were sent
        const size_t most_nbytes = hop.wire.nbytes(options.receive_numel);
        size_t& nbytes = largest[hop.axis];
        nbytes = std::max(nbytes, cut_exchange(hop.wire.nbytes(hop.part_numel), hop.ranks, most_nbytes).nbytes());
      }
    }
  }
  return std::accumulate(largest.begin(), largest.end(), size_t{0},
                         [](size_t sum, const auto& axis) { return sum + axis.second; });
}

size_t sums_nbytes(const ModelLayout& layout, const GradientOptions& options) {
  size_t largest = 0;
  for (const UnitLayout& unit : layout.units) {
    for (const FlatLayout& flat : unit.flats) {
      largest = std::max(largest, sums_nbytes(routes_of(flat, options, layout.mesh).reduce));
    }
  }
  return largest;
}

std::vector<size_t> disk_buffer_sizes(const std::vector<size_t>& chunk_nbytes, int wanted) {
  std::vector<size_t> sizes(std::min(static_cast<size_t>(wanted), chunk_nbytes.size()), 0);
  for (size_t chunk = 0; chunk < chunk_nbytes.size(); ++chunk) {
    size_t& nbytes = sizes[chunk % sizes.size()];
    nbytes = std::max(nbytes, in_pages(chunk_nbytes[chunk]));
  }
  return sizes;
}

namespace {

size_t sum_of(const std::vector<size_t>& sizes) { return std::accumulate(sizes.begin(), sizes.end(), size_t{0}); }

std::vector<UnitShards> shards_of(const ModelLayout& layout, const MemoryOptions& options) {
  ShardOptions placed = options.shards;
  placed.stage = options.gradients.stage;
  return place_shards(layout, placed);
}

void add_shards(MemoryPlan& plan, const std::vector<UnitShards>& units, const MemoryOptions& options) {
  for (const UnitShards& unit : units) {
    switch (unit.tier) {
      case Tier::device: plan.weights += unit.nbytes; break;
      case Tier::host: plan.host_weights += unit.nbytes; break;
      case Tier::disk: plan.disk_weights += in_pages(unit.nbytes); break;
    }
  }
  plan.disk_buffers += sum_of(disk_buffer_sizes(shards_on_disk(units), options.shards.buffers));
}

std::vector<StateChunk> chunks_of(const ModelLayout& layout, const MemoryOptions& options) {
  ChunkOptions cut = options.offload;
  cut.stage = options.gradients.stage;
  cut.moments = options.moments;
  return cut_states(layout, cut);
}

size_t weight_nbytes(const ModelLayout& layout, const StateChunk& chunk) {
  const UnitLayout& unit = layout.units[static_cast<size_t>(chunk.unit)];
  return static_cast<size_t>(chunk.numel()) * nbytes_of(unit.flats[static_cast<size_t>(chunk.flat)].dtype);
}

void add_states(MemoryPlan& plan, const ModelLayout& layout, const std::vector<StateChunk>& chunks,
                const MemoryOptions& options) {
  std::vector<size_t> of_host, of_disk;
  for (const StateChunk& chunk : chunks) {
    switch (chunk.tier) {
      case Tier::device: plan.states += chunk.nbytes; break;
      case Tier::host:
        plan.host_states += chunk.nbytes;
        of_host.push_back(chunk.nbytes);
        if (options.spare_states) plan.host_states += chunk.nbytes + weight_nbytes(layout, chunk);
        break;
      case Tier::disk:
        plan.disk_states += in_pages(chunk.nbytes);
        of_disk.push_back(chunk.nbytes);
        break;
    }
  }
  if (options.state_ring > 0) plan.state_ring = ring_nbytes(of_host, options.state_ring);
  plan.disk_buffers += sum_of(disk_buffer_sizes(of_disk, options.disk_buffers));
}

// A unit uses its own parameters and those it borrows.
std::vector<int> needed_units(const ModelLayout& layout, int unit) {
  std::vector<int> needed = layout.units[static_cast<size_t>(unit)].borrows;
  needed.push_back(unit);
  return needed;
}

}  // namespace

size_t largest_live_nbytes(const ModelLayout& layout, const Stage& stage, const GatherLimits& limits,
                           const std::vector<bool>& moved) {
  std::vector<int64_t> numel;
  std::vector<size_t> nbytes;
  for (size_t unit = 0; unit < layout.units.size(); ++unit) {
    numel.push_back(gathered_numel(layout.units[unit], stage));
    nbytes.push_back(gathered_nbytes(layout.units[unit], stage, !moved.empty() && moved[unit]));
  }
  GatherSchedule schedule(numel, limits);
  size_t live = 0;
  size_t largest = 0;
  const auto carry_out = [&](const std::vector<Action>& actions) {
    for (const Action& action : actions) {
      const size_t unit_nbytes = nbytes[static_cast<size_t>(action.unit)];
      live += action.verb == Action::Verb::gather ? unit_nbytes : -unit_nbytes;
      largest = std::max(largest, live);
    }
  };
  std::vector<int> order(layout.units.size());
  std::iota(order.begin(), order.end(), 0);
  // Two passes: the second prefetches by the recorded order.
  for (int pass = 0; pass < 2; ++pass) {
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      carry_out(schedule.begin(phase));
      for (const int unit : order) {
        for (const int needed : needed_units(layout, unit)) carry_out(schedule.enter(needed));
        for (const int needed : needed_units(layout, unit)) carry_out(schedule.exit(needed));
      }
      std::reverse(order.begin(), order.end());
    }
    carry_out(schedule.finish());
  }
  return largest;
}

MemoryPlan plan_memory(const ModelLayout& layout, const MemoryOptions& options) {
  const Stage& stage = options.gradients.stage;
  MemoryPlan plan;
  size_t largest_slot = 0, largest_berth = 0;
  const std::vector<UnitShards> shards = shards_of(layout, options);
  const std::vector<StateChunk> chunks = chunks_of(layout, options);
  const HostFlats by_host =
      options.on_gpu ? updated_by_host_alone(layout, chunks, options.state_ring > 0) : HostFlats{};
  const HostFlats host_gradients = options.host_gradients ? by_host : HostFlats{};
  std::vector<bool> moved;
  for (const UnitShards& unit : shards) moved.push_back(moves_shards(unit.tier, options.on_gpu));
  for (size_t index = 0; index < layout.units.size(); ++index) {
    const UnitLayout& unit = layout.units[index];
    for (size_t flat = 0; flat < unit.flats.size(); ++flat) {
      if (!is_gathered(unit.flats[flat], stage)) {
        plan.weights += static_cast<size_t>(unit.flats[flat].numel) * nbytes_of(unit.flats[flat].dtype);
      }
      size_t& gradients = contains(host_gradients, index, flat) ? plan.host_gradients : plan.gradients;
      gradients += kept_gradient_nbytes(unit.flats[flat], options.gradients);
      plan.gradients += open_group_nbytes(unit.flats[flat], options.gradients);
      plan.gradients += error_nbytes(unit.flats[flat], options.gradients, layout.mesh);
    }
    if (!host_gradients.empty()) {
      largest_berth = std::max(largest_berth, host_gradient_nbytes(unit, host_gradients[index], options.gradients));
    }
    largest_slot = std::max(largest_slot, slot_nbytes(unit, options.gradients));
  }
  add_shards(plan, shards, options);
  ShardOptions second = options.shards;
  second.stage = stage;
  plan.second_weights = second_nbytes(layout, second);
  add_states(plan, layout, chunks, options);
  if (options.save_memory > 0) {
    plan.save_pictures = picture_nbytes(saved_nbytes(layout, options.offload), options.save_memory);
  }
  if (options.on_gpu) {
    const int64_t piece_numel = fetched_piece_numel(options.offload.chunk_numel);
    plan.state_ring += kFetchedSlots * fetched_slot_nbytes(layout, stage, shards, by_host, piece_numel);
  }
  GatherLimits limits = options.gather;
  limits.buffer_of = shard_buffers(shards, options.shards.buffers);
  plan.gather_arena = largest_live_nbytes(layout, stage, limits, moved);
  plan.reduce_slots = largest_slot * static_cast<size_t>(options.reduce_slots) +
                      largest_berth * static_cast<size_t>(gradient_berths(options.gradients));
  plan.reduce_slots += sums_nbytes(layout, options.gradients);
  if (options.receives_gradients) plan.reduce_slots += receive_nbytes(layout, options);
  return plan;
}

std::string to_text(const MemoryPlan& plan) {
  std::string text;
  const auto line = [&](const char* name, size_t nbytes) {
    text += fmt::format("{:<16}{:>14}\n", name, format_nbytes(nbytes));
  };
  line("weights", plan.weights);
  line("gradients", plan.gradients);
  line("states", plan.states);
  line("gather arena", plan.gather_arena);
  line("reduce slots", plan.reduce_slots);
  const auto line_if_any = [&](const char* name, size_t nbytes) {
    if (nbytes > 0) line(name, nbytes);
  };
  line_if_any("state ring", plan.state_ring);
  line_if_any("second weights", plan.second_weights);
  line("total", plan.total());
  line_if_any("host weights", plan.host_weights);
  line_if_any("host gradients", plan.host_gradients);
  line_if_any("host states", plan.host_states);
  line_if_any("disk weights", plan.disk_weights);
  line_if_any("disk states", plan.disk_states);
  line_if_any("disk buffers", plan.disk_buffers);
  line_if_any("save pictures", plan.save_pictures);
  return text;
}

}  // namespace shoal
