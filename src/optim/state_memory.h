// The memory of the optimizer's states on this rank, chunk by chunk, each on its tier. Whoever updates them does not
// know the tier: it begins to use a chunk, finds its bytes at a fixed address, and ends. Chunks of the host tier come
// to a device through a ring there; a rank that computes in host memory has them at hand.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/queue.h"
#include "optim/state_stream.h"
#include "plan/state_chunks.h"
#include "store/chunk_ring.h"
#include "store/scratch_file.h"

namespace shoal {

struct StateTiers {
  OffloadConfig offload = {};
  AioConfig aio = {};
  bool verify = false;
  size_t ring_nbytes = 0;  // of the queue's memory, for chunks of the host that come there to be updated; 0: none do
};

class StateMemory {
 public:
  // The queue outlives this object.
  StateMemory(std::vector<StateChunk> chunks, const StateTiers& tiers, Queue& queue,
              const std::shared_ptr<Ledger>& ledger);

  const std::vector<StateChunk>& chunks() const { return chunks_; }
  // Whether the chunk's bytes are at its address all the time.
  bool is_resident(int chunk) const { return places_[static_cast<size_t>(chunk)].resident != nullptr; }
  // Whether the chunk comes to the queue's memory for its update, and lives in host memory else.
  bool is_streamed(int chunk) const { return places_[static_cast<size_t>(chunk)].stream_index >= 0; }
  // Where an update finds the chunk's bytes: in the queue's memory where it is of the device's tier or streamed, in
  // host memory else.
  std::byte* address(int chunk) const;
  // Gives streamed chunks more of the queue's memory, between steps. True: they have other addresses now.
  bool grow_ring(size_t nbytes) { return stream_ && stream_->grow(nbytes); }

  // Streamed chunks that stay in host memory from now on, and not all of them. All others have other addresses then.
  // Between steps.
  void leave_in_host(const std::vector<int>& chunks);
  size_t streamed_nbytes() const { return stream_ ? stream_->streamed_nbytes() : 0; }
  // Gives each chunk that is always at hand in host memory a second place. Between steps, once.
  void make_spares(const std::shared_ptr<Ledger>& ledger);
  // The chunk's second place, whose bytes mean nothing; null: it has none.
  std::byte* spare(int chunk) const { return places_[static_cast<size_t>(chunk)].spare; }
  // The chunk's bytes are those of its second place from now on, and its first place is the second.
  void take_spare(int chunk);
  // The ring's memory, free to use until states are brought again. Between steps, where there is a ring.
  std::span<std::byte> empty_ring() { return stream_->empty_ring(); }

  // Soon all chunks will be used, in their order: begins to bring the first of those that are not resident, from the
  // host or from disk.
  void bring_ahead() {
    if (stream_) stream_->read_ahead();
  }
  void read_ahead() {
    if (disk_) disk_->read_ahead();
  }
  // Between parts of a pass, which states on their way keep step with.
  void pace() {
    if (stream_) stream_->pace();
  }
  void end_step() {
    if (stream_) stream_->end_step();
  }
  // Around an update of a chunk that is not resident.
  void begin_use(int chunk);
  void end_use(int chunk);

  // Between steps, any chunk: its bytes, in host memory where its tier is not the device, valid until the next call of
  // either.
  const std::byte* look(int chunk) const;
  std::byte* change(int chunk);

  // Of chunks on disk; null where there are none.
  const ScratchFile* file() const { return file_.get(); }
  // Bytes that streamed chunks moved, and the time that the queue stood still for them.
  PacedCopies::Counters streamed() const { return stream_ ? stream_->counters() : PacedCopies::Counters{}; }
  size_t ring_nbytes() const { return stream_ ? stream_->ring_nbytes() : 0; }
  // Why host memory could not be pinned, once a step has used it; "" where it was.
  std::string unpinned_because() const { return stream_ ? stream_->unpinned_because() : ""; }

 private:
  struct Place {
    std::byte* resident = nullptr;
    int disk_index = -1;    // on disk
    int stream_index = -1;  // streamed
    std::byte* spare = nullptr;
  };

  std::vector<StateChunk> chunks_;
  std::vector<Place> places_;
  std::shared_ptr<Slab> device_;
  std::shared_ptr<Slab> host_, spares_;
  std::unique_ptr<StateStream> stream_;
  std::shared_ptr<Slab> buffers_;  // the ring's; registered with the file, so they outlive it
  std::unique_ptr<ScratchFile> file_;
  std::unique_ptr<ChunkRing> disk_;
};

}  // namespace shoal
