// Chunks of states that live in host memory and come to the device for their update, in a fixed order, round and round:
// through a ring of device memory, brought ahead of the work and taken back behind it. Some may be left out, which stay
// in host memory all the time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/paced_copies.h"
#include "device/queue.h"
#include "device/slab.h"
#include "plan/ring_layout.h"

namespace shoal {

class StateStream {
 public:
  // Chunks of these sizes, one after the other in `host`, which is pinned in the background. The ring takes
  // ring_nbytes(chunk_nbytes, staging) bytes. The queue outlives this object.
  StateStream(std::shared_ptr<Slab> host, std::vector<size_t> chunk_nbytes, size_t staging, Queue& queue,
              std::shared_ptr<Ledger> ledger);

  // Where the queue finds the chunk's bytes while it is taken.
  std::byte* memory(int chunk) const { return ring_->data() + places_[position_of(chunk)].offset; }
  size_t ring_nbytes() const { return ring_->nbytes(); }
  // Of the chunks that pass through the ring.
  size_t streamed_nbytes() const;
  // Makes the ring as large as `staging` allows, if that is more and can be had. True: chunks have other places now.
  // Between rounds.
  bool grow(size_t staging);
  // From now on these chunks, and not all of them, stay where they are; the result is where each of them lies. All
  // others have other places in the ring. Between rounds.
  std::vector<std::byte*> leave_out(const std::vector<int>& chunks);
  // The ring's memory, free to use until something is brought again. Between rounds.
  std::span<std::byte> empty_ring();
  // A step has ended, with a round or, where it was skipped, without one: what comes now is paced by the next.
  void end_step() { copies_.end_step(); }

  // Begins to bring what is taken next, as far as the ring is free. Blocks for nothing.
  void read_ahead();
  // Between parts of a pass: lets copies keep step with it. Inside a round its work waits for what is left of the
  // round.
  void pace();
  // What the queue is given later finds the chunk. Each is taken in its turn and given back before the next.
  void take(int chunk);
  // The queue's work on it changes its bytes: takes them back after that, and brings the next.
  void give(int chunk);

  // Between rounds: the chunk's bytes in host memory. change() means that they will be written.
  const std::byte* look(int chunk);
  std::byte* change(int chunk);

  PacedCopies::Counters counters() const { return copies_.counters(); }
  const std::string& unpinned_because() const { return copies_.unpinned_because(); }

 private:
  int64_t count() const { return static_cast<int64_t>(round_.size()); }
  size_t position_of(int chunk) const { return positions_[static_cast<size_t>(chunk)]; }
  std::vector<size_t> round_nbytes() const;
  std::byte* host(int chunk) const { return host_->data() + host_offsets_[static_cast<size_t>(chunk)]; }
  // The first use after this round; between rounds, after the last one.
  int64_t round_end() const { return (next_ + count() - 1) / count() * count(); }
  void make_ring(size_t nbytes);
  void settle();

  std::shared_ptr<Slab> host_;
  std::vector<size_t> chunk_nbytes_, host_offsets_;
  Queue& queue_;
  std::shared_ptr<Ledger> ledger_;
  std::shared_ptr<Slab> ring_;
  std::vector<int> round_;         // the chunks that pass through the ring, in their order
  std::vector<size_t> positions_;  // of each chunk in it
  std::vector<RingPlace> places_;  // of each position
  // Uses of chunks are counted on from round to round: use n is of position n modulo their number.
  int64_t next_ = 0;     // taken next
  int64_t brought_ = 0;  // this many are brought, or on their way
  bool settled_ = true;
  PacedCopies copies_;  // last: its copies end before the memory goes
};

}  // namespace shoal
