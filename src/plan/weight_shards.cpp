// See weight_shards.h.
#include "plan/weight_shards.h"

#include <fmt/format.h>

#include "layout/stage.h"

namespace shoal {

namespace {

// Elements of this rank's shards.
int64_t sharded_numel(const UnitLayout& unit, int stage) {
  int64_t numel = 0;
  for (const FlatLayout& flat : unit.flats) {
    if (row_of(flat, stage).shard_weights) numel += flat.shard_numel;
  }
  return numel;
}

}  // namespace

std::vector<UnitShards> place_shards(const ModelLayout& layout, const ShardOptions& options) {
  std::vector<UnitShards> units;
  int64_t room = options.tier == Tier::disk ? options.max_in_host : 0;
  for (const UnitLayout& unit : layout.units) {
    UnitShards& shards = units.emplace_back();
    for (const FlatLayout& flat : unit.flats) {
      if (!row_of(flat, options.stage).shard_weights) continue;
      shards.nbytes += static_cast<size_t>(flat.shard_numel) * nbytes_of(flat.dtype);
    }
    const int64_t numel = sharded_numel(unit, options.stage);
    if (shards.nbytes == 0) continue;
    const bool stays = options.tier == Tier::disk && numel <= room;
    if (stays) room -= numel;
    shards.tier = stays ? Tier::host : options.tier;
  }
  return units;
}

std::string notice_of_unused_disk(const ModelLayout& layout, const ShardOptions& options) {
  if (options.tier != Tier::disk || !shards_on_disk(place_shards(layout, options)).empty()) return "";
  int64_t numel = 0;
  for (const UnitLayout& unit : layout.units) numel += sharded_numel(unit, options.stage);
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
