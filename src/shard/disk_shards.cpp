// See disk_shards.h.
#include "shard/disk_shards.h"

#include <algorithm>
#include <utility>

namespace shoal {

DiskShards::DiskShards(const std::vector<UnitShards>& units, std::unique_ptr<ScratchFile> file, int buffers,
                       std::shared_ptr<ShardHome> resident,
                       const std::function<std::shared_ptr<Slab>(size_t nbytes)>& allocate)
    : resident_(std::move(resident)), file_(std::move(file)) {
  int chunks = 0;
  for (const UnitShards& unit : units) chunks_.push_back(unit.tier == Tier::disk ? chunks++ : -1);
  buffers_ = std::make_unique<ChunkBuffers>(file_->file(), shards_on_disk(units), buffers, allocate);
  memory_ = buffers_->slab();
  readers_.resize(static_cast<size_t>(buffers_->buffers()));
}

std::byte* DiskShards::address(int unit) const {
  return chunk_of(unit) < 0 ? resident_->address(unit) : buffers_->memory(chunk_of(unit));
}

// A reader that failed reads no more; who finishes the gather hears of it.
void DiskShards::make_way(int chunk) {
  if (buffers_->has(chunk)) return;
  for (const Handle& reader : readers_of(chunk)) {
    try {
      reader.wait_over();
    } catch (const std::exception&) {
    }
  }
  readers_of(chunk).clear();
}

void DiskShards::fetch(int unit) {
  const int chunk = chunk_of(unit);
  if (chunk < 0) return;
  make_way(chunk);
  buffers_->look(chunk);
}

void DiskShards::change(int unit) {
  const int chunk = chunk_of(unit);
  if (chunk < 0) return;
  make_way(chunk);
  buffers_->change(chunk);
}

void DiskShards::store(int unit) {
  if (chunk_of(unit) >= 0) buffers_->store(chunk_of(unit));
}

void DiskShards::lend(int unit, const Handle& reader) {
  if (chunk_of(unit) < 0) return;
  std::vector<Handle>& readers = readers_of(chunk_of(unit));
  std::erase_if(readers, [](const Handle& other) { return other.over(); });
  readers.push_back(reader);
}

// A unit that comes sooner keeps its buffer.
void DiskShards::expect(const std::vector<int>& units) {
  std::vector<bool> taken(readers_.size(), false);
  for (const int unit : units) {
    const int chunk = chunk_of(unit);
    if (chunk < 0) continue;
    const auto buffer = static_cast<size_t>(buffers_->buffer_of(chunk));
    if (taken[buffer]) continue;
    taken[buffer] = true;
    const bool lent = std::any_of(readers_[buffer].begin(), readers_[buffer].end(),
                                  [](const Handle& reader) { return !reader.over(); });
    if (!lent) buffers_->expect(chunk);
  }
}

void DiskShards::leave() {
  for (std::vector<Handle>& readers : readers_) readers.clear();
}

}  // namespace shoal
