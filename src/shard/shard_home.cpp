// See shard_home.h.
#include "shard/shard_home.h"

#include <utility>

#include "comm/group/full_group.h"
#include "device/queue.h"
#include "plan/from_config.h"
#include "shard/disk_shards.h"

namespace shoal {

namespace {

class ResidentShards final : public ShardHome {
 public:
  struct Place {
    std::shared_ptr<Slab> slab;
    size_t offset = 0;
  };
  explicit ResidentShards(std::vector<Place> places) : places_(std::move(places)) {}

  std::byte* address(int unit) const override { return place_of(unit).slab->data() + place_of(unit).offset; }
  const std::shared_ptr<Slab>& slab() const override { return places_.front().slab; }
  bool is_on_device(int unit) const override { return place_of(unit).slab->on_device(); }

 private:
  const Place& place_of(int unit) const { return places_[static_cast<size_t>(unit)]; }

  std::vector<Place> places_;  // of each unit
};

}  // namespace

std::shared_ptr<ShardHome> make_resident_home(std::shared_ptr<Slab> slab) {
  return std::make_shared<ResidentShards>(std::vector<ResidentShards::Place>{{std::move(slab), 0}});
}

std::shared_ptr<ShardHome> make_resident_home(
    const std::vector<UnitShards>& units,
    const std::function<std::shared_ptr<Slab>(size_t nbytes, Tier tier)>& allocate) {
  size_t device_nbytes = 0, host_nbytes = 0;
  const auto nbytes_before = [&](Tier tier) -> size_t& { return tier == Tier::device ? device_nbytes : host_nbytes; };
  std::vector<ResidentShards::Place> places;
  for (const UnitShards& unit : units) {
    places.push_back({nullptr, nbytes_before(unit.tier)});
    if (unit.tier != Tier::disk) nbytes_before(unit.tier) += unit.nbytes;
  }
  const auto host = host_nbytes > 0 ? allocate(host_nbytes, Tier::host) : nullptr;
  const auto device = device_nbytes > 0 || !host ? allocate(device_nbytes, Tier::device) : nullptr;
  for (size_t unit = 0; unit < units.size(); ++unit) {
    const bool on_device = units[unit].tier == Tier::device && device;
    places[unit].slab = on_device || !host ? device : host;  // one that has no bytes lies with others
  }
  return std::make_shared<ResidentShards>(std::move(places));
}

std::shared_ptr<ShardHome> make_shard_home(const std::vector<UnitShards>& units, int buffers,
                                           std::unique_ptr<ScratchFile> file, Group& channel, Queue& queue,
                                           const std::shared_ptr<Ledger>& ledger) {
  const auto of_kind = [&](size_t nbytes, MemoryKind kind) {
    return kind != MemoryKind::weights && queue.device() >= 0 ? queue.allocate_host(nbytes, ledger, kind)
                                                              : full(channel).allocate(nbytes, ledger, kind);
  };
  const auto resident = make_resident_home(units, [&](size_t nbytes, Tier tier) {
    return of_kind(nbytes, tier == Tier::device ? MemoryKind::weights : MemoryKind::host_weights);
  });
  if (!file) return resident;
  return std::make_shared<DiskShards>(units, std::move(file), buffers, resident,
                                      [&](size_t nbytes) { return of_kind(nbytes, MemoryKind::disk_buffers); });
}

std::unique_ptr<ScratchFile> make_shard_file(const ModelLayout& layout, const Config& config,
                                             const std::shared_ptr<Ledger>& ledger) {
  const std::vector<size_t> on_disk = shards_on_disk(place_shards(layout, shard_options(config)));
  if (on_disk.empty()) return nullptr;
  return std::make_unique<ScratchFile>(
      config.zero.offload_param.nvme_path,
      scratch_options(config.aio, config.shoal.verify_offload, "weights", ChunkBuffers::file_nbytes(on_disk)), ledger,
      MemoryKind::disk_weights);
}

}  // namespace shoal
