// See shard_home.h.
#include "shard/shard_home.h"

#include <utility>

#include "device/queue.h"
#include "plan/from_config.h"
#include "shard/disk_shards.h"

namespace shoal {

namespace {

class ResidentShards final : public ShardHome {
 public:
  ResidentShards(std::vector<size_t> offsets, std::shared_ptr<Slab> slab)
      : offsets_(std::move(offsets)), slab_(std::move(slab)) {}

  std::byte* address(int unit) const override { return slab_->data() + offsets_[static_cast<size_t>(unit)]; }
  const std::shared_ptr<Slab>& slab() const override { return slab_; }

 private:
  std::vector<size_t> offsets_;  // of each unit
  std::shared_ptr<Slab> slab_;
};

}  // namespace

std::shared_ptr<ShardHome> make_resident_home(std::shared_ptr<Slab> slab) {
  return std::make_shared<ResidentShards>(std::vector<size_t>{0}, std::move(slab));
}

std::shared_ptr<ShardHome> make_shard_home(const std::vector<UnitShards>& units, const ShardOptions& options,
                                           std::unique_ptr<ScratchFile> file, Group& channel, Queue& queue,
                                           const std::shared_ptr<Ledger>& ledger) {
  const bool on_host = options.tier != Tier::device;
  const auto allocate = [&](size_t nbytes, MemoryKind kind) {
    return on_host && queue.device() >= 0 ? queue.allocate_host(nbytes, ledger, kind)
                                          : channel.allocate(nbytes, ledger, kind);
  };
  if (file) return std::make_shared<DiskShards>(units, std::move(file), options.buffers, allocate);
  std::vector<size_t> offsets;
  size_t nbytes = 0;
  for (const UnitShards& unit : units) {
    offsets.push_back(nbytes);
    nbytes += unit.nbytes;
  }
  return std::make_shared<ResidentShards>(std::move(offsets),
                                          allocate(nbytes, on_host ? MemoryKind::host_weights : MemoryKind::weights));
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
