// A rank's shards of weights in a file: a unit's come to a buffer before a gather or an update reads them, and go back
// when they have changed. Some units may stay in memory.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "shard/shard_home.h"
#include "store/chunk_buffers.h"

namespace shoal {

class DiskShards final : public ShardHome {
 public:
  // At least one unit is on disk; `resident` has the others. The file has room for shards_on_disk(units).
  DiskShards(const std::vector<UnitShards>& units, std::unique_ptr<ScratchFile> file, int buffers,
             std::shared_ptr<ShardHome> resident, const std::function<std::shared_ptr<Slab>(size_t nbytes)>& allocate);

  std::byte* address(int unit) const override;
  const std::shared_ptr<Slab>& slab() const override { return buffers_->slab(); }
  bool is_on_device(int unit) const override { return chunk_of(unit) < 0 && resident_->is_on_device(unit); }
  void fetch(int unit) override;
  void change(int unit) override;
  void store(int unit) override;
  void lend(int unit, const Handle& reader) override;
  void expect(const std::vector<int>& units) override;
  int reads_ahead() const override { return buffers_->buffers(); }
  void leave() override;
  const ScratchFile* file() const override { return file_.get(); }

 private:
  int chunk_of(int unit) const { return chunks_[static_cast<size_t>(unit)]; }
  std::vector<Handle>& readers_of(int chunk) { return readers_[static_cast<size_t>(buffers_->buffer_of(chunk))]; }
  // Waits for whoever reads from the chunk's buffer what is another unit's.
  void make_way(int chunk);

  std::vector<int> chunks_;  // of the file, of each unit; -1: in memory
  std::shared_ptr<ShardHome> resident_;
  std::shared_ptr<Slab> memory_;  // the buffers'; registered with the file, so it outlives it
  std::unique_ptr<ScratchFile> file_;
  std::unique_ptr<ChunkBuffers> buffers_;
  std::vector<std::vector<Handle>> readers_;  // of each buffer: collectives that may not be over
};

}  // namespace shoal
