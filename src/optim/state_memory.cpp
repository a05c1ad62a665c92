// See state_memory.h.
#include "optim/state_memory.h"

#include <utility>

namespace shoal {

namespace {

size_t nbytes_on(Tier tier, const std::vector<StateChunk>& chunks) {
  size_t total = 0;
  for (const StateChunk& chunk : chunks) {
    if (chunk.tier == tier) total += chunk.nbytes;
  }
  return total;
}

}  // namespace

StateMemory::StateMemory(std::vector<StateChunk> chunks, const StateTiers& tiers, Queue& queue,
                         const std::shared_ptr<Ledger>& ledger)
    : chunks_(std::move(chunks)), places_(chunks_.size()) {
  device_ = queue.allocate(nbytes_on(Tier::device, chunks_), ledger, MemoryKind::states);
  host_ = Slab::create(nbytes_on(Tier::host, chunks_), Slab::Backing::anonymous, ledger, MemoryKind::host_states);
  std::byte* device = device_->data();
  std::byte* host = host_->data();
  std::vector<size_t> on_disk, streamed;
  for (size_t index = 0; index < chunks_.size(); ++index) {
    const StateChunk& chunk = chunks_[index];
    switch (chunk.tier) {
      case Tier::device:
        places_[index].resident = device;
        device += chunk.nbytes;
        break;
      case Tier::host:
        if (tiers.ring_nbytes > 0) {
          places_[index].stream_index = static_cast<int>(streamed.size());
          streamed.push_back(chunk.nbytes);
        } else {
          places_[index].resident = host;
          host += chunk.nbytes;
        }
        break;
      case Tier::disk:
        places_[index].disk_index = static_cast<int>(on_disk.size());
        on_disk.push_back(chunk.nbytes);
        break;
    }
  }
  if (!streamed.empty()) {
    stream_ = std::make_unique<StateStream>(host_, std::move(streamed), tiers.ring_nbytes, queue, ledger);
  }
  if (on_disk.empty()) return;
  file_ = std::make_unique<ScratchFile>(
      tiers.offload.nvme_path, scratch_options(tiers.aio, tiers.verify, "states", ChunkBuffers::file_nbytes(on_disk)),
      ledger, MemoryKind::disk_states);
  disk_ = std::make_unique<ChunkRing>(file_->file(), on_disk, tiers.offload.buffer_count, ledger);
  buffers_ = disk_->slab();
}

std::byte* StateMemory::address(int chunk) const {
  const Place& place = places_[static_cast<size_t>(chunk)];
  if (place.stream_index >= 0) return stream_->memory(place.stream_index);
  return place.disk_index >= 0 ? disk_->memory(place.disk_index) : place.resident;
}

void StateMemory::leave_in_host(const std::vector<int>& chunks) {
  std::vector<int> streamed;
  for (const int chunk : chunks) streamed.push_back(places_[static_cast<size_t>(chunk)].stream_index);
  const std::vector<std::byte*> homes = stream_->leave_out(streamed);
  for (size_t i = 0; i < chunks.size(); ++i) {
    places_[static_cast<size_t>(chunks[i])] = {.resident = homes[i]};
  }
}

void StateMemory::make_spares(const std::shared_ptr<Ledger>& ledger) {
  const auto gets_one = [&](size_t index) {
    return chunks_[index].tier == Tier::host && places_[index].resident != nullptr;
  };
  size_t nbytes = 0;
  for (size_t index = 0; index < chunks_.size(); ++index) nbytes += gets_one(index) ? chunks_[index].nbytes : 0;
  spares_ = Slab::create(nbytes, Slab::Backing::anonymous, ledger, MemoryKind::host_states);
  std::byte* next = spares_->data();
  for (size_t index = 0; index < chunks_.size(); ++index) {
    if (!gets_one(index)) continue;
    places_[index].spare = next;
    next += chunks_[index].nbytes;
  }
}

void StateMemory::take_spare(int chunk) {
  Place& place = places_[static_cast<size_t>(chunk)];
  std::swap(place.resident, place.spare);
}

void StateMemory::begin_use(int chunk) {
  const Place& place = places_[static_cast<size_t>(chunk)];
  if (place.disk_index >= 0) disk_->take(place.disk_index);
  if (place.stream_index >= 0) stream_->take(place.stream_index);
}

void StateMemory::end_use(int chunk) {
  const Place& place = places_[static_cast<size_t>(chunk)];
  if (place.disk_index >= 0) disk_->give(place.disk_index);
  if (place.stream_index >= 0) stream_->give(place.stream_index);
}

const std::byte* StateMemory::look(int chunk) const {
  const Place& place = places_[static_cast<size_t>(chunk)];
  if (place.stream_index >= 0) return stream_->look(place.stream_index);
  return place.disk_index >= 0 ? disk_->look(place.disk_index) : place.resident;
}

std::byte* StateMemory::change(int chunk) {
  const Place& place = places_[static_cast<size_t>(chunk)];
  if (place.stream_index >= 0) return stream_->change(place.stream_index);
  return place.disk_index >= 0 ? disk_->change(place.disk_index) : place.resident;
}

}  // namespace shoal
