// See weight_shards.h.
#include "plan/weight_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace shoal {

namespace {

// Elements of this rank's shards.
int64_t sharded_numel(const UnitLayout& unit, const Stage& stage) {
  int64_t numel = 0;
  for (const FlatLayout& flat : unit.flats) {
    if (is_gathered(flat, stage)) numel += numel_over(flat, row_of(flat, stage).weights);
  }
  return numel;
}

}  // namespace

Wire weight_wire(const FlatLayout& flat, const ShardOptions& options) {
  const bool asked = options.quantized || (options.quantized_frozen && !flat.trainable);
  const bool travels = is_gathered(flat, options.stage) && !is_alone(flat, options.stage);
  return {flat.dtype, asked && travels ? 8 : 0};
}

bool quantizes_weights(const ModelLayout& layout, const ShardOptions& options) {
  for (const UnitLayout& unit : layout.units) {
    for (const FlatLayout& flat : unit.flats) {
      if (weight_wire(flat, options).is_blocks()) return true;
    }
  }
  return false;
}

bool keeps_second(const FlatLayout& flat, const ShardOptions& options) {
  const Over weights = row_of(flat, options.stage).weights;
  return options.second && weights == Over::world && flat.rank_numel != flat.shard_numel;
}

size_t second_nbytes(const FlatLayout& flat, const ShardOptions& options) {
  const Wire wire = weight_wire(flat, options);
  if (keeps_second(flat, options)) return wire.nbytes(flat.shard_numel);
  return wire.is_blocks() ? wire.nbytes(numel_over(flat, row_of(flat, options.stage).weights)) : 0;
}

size_t second_nbytes(const ModelLayout& layout, const ShardOptions& options) {
  size_t nbytes = 0;
  for (const UnitLayout& unit : layout.units) {
    for (const FlatLayout& flat : unit.flats) nbytes += second_nbytes(flat, options);
  }
  return nbytes;
}

std::vector<UnitShards> place_shards(const ModelLayout& layout, const ShardOptions& options) {
  std::vector<UnitShards> units;
  int64_t all = 0;
  for (const UnitLayout& unit : layout.units) all += sharded_numel(unit, options.stage);
  constexpr double kRounding = 1e-6;  // of an element, in the product
  const auto moved = static_cast<int64_t>(std::ceil(static_cast<double>(all) * options.ratio - kRounding));
  int64_t device_room = all - std::max<int64_t>(moved, options.ratio > 0 ? 1 : 0);
  int64_t host_room = options.tier == Tier::disk ? options.max_in_host : 0;
  const auto stays = [](int64_t numel, int64_t& room) {
    if (numel > room) return false;
    room -= numel;
    return true;
  };
  for (const UnitLayout& unit : layout.units) {
    UnitShards& shards = units.emplace_back();
    for (const FlatLayout& flat : unit.flats) {
      if (!is_gathered(flat, options.stage)) continue;
      shards.nbytes +=
          static_cast<size_t>(numel_over(flat, row_of(flat, options.stage).weights)) * nbytes_of(flat.dtype);
    }
    const int64_t numel = sharded_numel(unit, options.stage);
    if (shards.nbytes == 0 || options.tier == Tier::device || stays(numel, device_room)) continue;
    shards.tier = options.tier == Tier::disk && stays(numel, host_room) ? Tier::host : options.tier;
  }
  return units;
}

std::string notice_of_unused_offload(const ModelLayout& layout, const ShardOptions& options) {
  if (options.stage.row.weights == Over::nobody || options.tier == Tier::device) return "";
  const std::vector<UnitShards> units = place_shards(layout, options);
  if (std::all_of(units.begin(), units.end(), [](const UnitShards& unit) { return unit.nbytes == 0; })) {
    return "offload_param: no parameter leaves the device, since each has at most as many elements as "
           "stage3_param_persistence_threshold and stays whole on every rank. Lower that.";
  }
  if (options.tier != Tier::disk || !shards_on_disk(units).empty()) return "";
  int64_t numel = 0;
  for (size_t unit = 0; unit < units.size(); ++unit) {
    if (units[unit].tier == Tier::host) numel += sharded_numel(layout.units[unit], options.stage);
  }
  if (numel == 0) return "";
  return fmt::format(
      "offload_param.device nvme: all {} elements of a rank fit max_in_cpu {}, nothing is on disk. Lower max_in_cpu.",
      numel, options.max_in_host);
}

std::vector<size_t> shards_on_disk(const std::vector<UnitShards>& units) {
  std::vector<size_t> sizes;
  for (const UnitShards& unit : units) {
    if (unit.tier == Tier::disk) sizes.push_back(unit.nbytes);
  }
  return sizes;
}

std::vector<int> shard_buffers(const std::vector<UnitShards>& units, int buffers) {
  std::vector<int> buffer_of;
  int chunks = 0;
  for (const UnitShards& unit : units) buffer_of.push_back(unit.tier == Tier::disk ? chunks++ % buffers : -1);
  return buffer_of;
}

}  // namespace shoal
