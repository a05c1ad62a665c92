// See memory.h.
#include "plan/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "plan/ring_layout.h"

namespace shoal {

size_t master_nbytes(DType weight_dtype) {
  switch (weight_dtype) {
    case DType::f32: return 0;
    case DType::bf16: return 2;
    case DType::f16: return 4;
  }
  return 0;
}

int64_t weight_numel(const FlatLayout& flat, int stage) {
  return row_of(flat, stage).shard_weights ? flat.shard_numel : flat.numel;
}

int64_t kept_gradient_numel(const FlatLayout& flat, const GradientOptions& options) {
  if (!flat.trainable) return 0;
  return gradient_rule(flat, options).kept_whole ? flat.numel : flat.shard_numel;
}

int64_t state_numel(const FlatLayout& flat, int stage) {
  if (!flat.trainable) return 0;
  return row_of(flat, stage).shard_states ? flat.shard_numel : flat.numel;
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

int64_t gathered_numel(const UnitLayout& unit, int stage) {
  int64_t numel = 0;
  for (const FlatLayout& flat : unit.flats) {
    if (row_of(flat, stage).shard_weights) numel += flat.numel;
  }
  return numel;
}

size_t gathered_nbytes(const UnitLayout& unit, int stage, bool from_host) {
  size_t nbytes = 0;
  for (const FlatLayout& flat : unit.flats) {
    if (!row_of(flat, stage).shard_weights || (is_alone(flat) && !from_host)) continue;
    nbytes += static_cast<size_t>(flat.numel) * nbytes_of(flat.dtype);
  }
  return (nbytes + kArenaGranule - 1) / kArenaGranule * kArenaGranule;
}

size_t fetched_weight_nbytes(const UnitLayout& unit, int stage) {
  size_t nbytes = 0;
  for (const FlatLayout& flat : unit.flats) {
    if (!flat.trainable || !row_of(flat, stage).shard_weights) continue;
    nbytes += static_cast<size_t>(flat.shard_numel) * nbytes_of(flat.dtype);
  }
  return nbytes;
}

size_t disk_buffer_nbytes(const std::vector<StateChunk>& chunks) {
  size_t largest = 0;
  for (const StateChunk& chunk : chunks) {
    if (chunk.tier == Tier::disk) largest = std::max(largest, in_pages(chunk.nbytes));
  }
  return largest;
}

int disk_buffers_used(const std::vector<StateChunk>& chunks, int wanted) {
  const auto on_disk =
      std::count_if(chunks.begin(), chunks.end(), [](const StateChunk& chunk) { return chunk.tier == Tier::disk; });
  return static_cast<int>(std::min<int64_t>(wanted, on_disk));
}

namespace {

void add_states(MemoryPlan& plan, const ModelLayout& layout, const MemoryOptions& options) {
  ChunkOptions cut = options.offload;
  cut.stage = options.gradients.stage;
  cut.moments = options.moments;
  const std::vector<StateChunk> chunks = cut_states(layout, cut);
  std::vector<size_t> of_host;
  for (const StateChunk& chunk : chunks) {
    switch (chunk.tier) {
      case Tier::device: plan.states += chunk.nbytes; break;
      case Tier::host:
        plan.host_states += chunk.nbytes;
        of_host.push_back(chunk.nbytes);
        break;
      case Tier::disk: plan.disk_states += in_pages(chunk.nbytes); break;
    }
  }
  if (options.state_ring > 0) plan.state_ring = ring_nbytes(of_host, options.state_ring);
  plan.disk_buffers = disk_buffer_nbytes(chunks) * static_cast<size_t>(disk_buffers_used(chunks, options.disk_buffers));
}

// A unit uses its own parameters and those it borrows.
std::vector<int> needed_units(const ModelLayout& layout, int unit) {
  std::vector<int> needed = layout.units[static_cast<size_t>(unit)].borrows;
  needed.push_back(unit);
  return needed;
}

}  // namespace

size_t largest_live_nbytes(const ModelLayout& layout, int stage, const GatherLimits& limits, bool from_host) {
  std::vector<int64_t> numel;
  std::vector<size_t> nbytes;
  for (const UnitLayout& unit : layout.units) {
    numel.push_back(gathered_numel(unit, stage));
    nbytes.push_back(gathered_nbytes(unit, stage, from_host));
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
  const int stage = options.gradients.stage;
  MemoryPlan plan;
  size_t largest_slot = 0, largest_fetch = 0;
  const bool weights_from_host = options.on_gpu && options.weights_tier == Tier::host;
  for (const UnitLayout& unit : layout.units) {
    if (weights_from_host) largest_fetch = std::max(largest_fetch, fetched_weight_nbytes(unit, stage));
    for (const FlatLayout& flat : unit.flats) {
      const size_t weights = static_cast<size_t>(weight_numel(flat, stage)) * nbytes_of(flat.dtype);
      const bool off_device = options.weights_tier != Tier::device && row_of(flat, stage).shard_weights;
      (off_device ? plan.host_weights : plan.weights) += weights;
      if (!flat.trainable) continue;
      plan.gradients += static_cast<size_t>(kept_gradient_numel(flat, options.gradients)) *
                        nbytes_of(gradient_rule(flat, options.gradients).kept);
    }
    largest_slot = std::max(largest_slot, slot_nbytes(unit, options.gradients));
  }
  add_states(plan, layout, options);
  plan.state_ring += largest_fetch;
  plan.gather_arena = largest_live_nbytes(layout, stage, options.gather, weights_from_host);
  plan.reduce_slots = largest_slot * static_cast<size_t>(options.reduce_slots);
  return plan;
}

std::string to_text(const MemoryPlan& plan) {
  std::string text;
  const auto line = [&](const char* name, size_t nbytes) {
    text += fmt::format("{:<14}{:>14}\n", name, format_nbytes(nbytes));
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
  line("total", plan.total());
  line_if_any("host weights", plan.host_weights);
  line_if_any("host states", plan.host_states);
  line_if_any("disk states", plan.disk_states);
  line_if_any("disk buffers", plan.disk_buffers);
  return text;
}

}  // namespace shoal
