// The optimizer's states that this rank keeps, by unit, flat and element: where they lie, and how they are read and set
// between steps. Knows no stage: it keeps the range of each flat that the layout gives it, a shard or the whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "device/queue.h"
#include "layout/stage.h"
#include "optim/state_memory.h"
#include "shard/weights.h"
#include "shoal/config.h"

namespace shoal {

class KeptStates {
 public:
  // States lie where the config's offload section wants them, zero. The queue outlives this object. Communicates
  // nothing.
  KeptStates(const ModelLayout& layout, const Config& config, int rank, Queue& queue,
             const std::shared_ptr<Ledger>& ledger);
  KeptStates(const KeptStates&) = delete;
  KeptStates& operator=(const KeptStates&) = delete;

  // Elements of a flat whose states this rank keeps; empty for a frozen flat.
  struct Range {
    int64_t begin = 0, end = 0;
  };
  Range kept_range(int unit, int flat) const;

  // Sets weights and masters of a flat's elements from their fp32 values, as far as this rank keeps them, and leaves
  // the moments alone. Values are rounded to nearest even where nothing of 32 bits is kept.
  void set_values(int unit, int flat, Range range, const float* values, Weights& weights);
  // The fp32 values of elements that this rank keeps: masters of a trained flat, the weights of a frozen one.
  void get_values(int unit, int flat, Range range, float* values, const Weights& weights) const;

  // How many moments the optimizer keeps, their dtype, and moment 0 or 1 of elements in the kept range.
  int moments() const { return moments_; }
  DType moment_dtype() const { return moment_dtype_; }
  // Whether weights of 16 bits are their own masters.
  bool narrow_masters() const { return narrow_masters_; }
  void get_moment(int which, int unit, int flat, Range range, float* values) const;
  void set_moment(int which, int unit, int flat, Range range, const float* values);

  // A parameter was written from outside: takes its new values from the whole flat, in the flat's dtype and the queue's
  // memory, as exact.
  void reset_param(int unit, int flat, const Piece& piece, const std::byte* whole, Weights& weights);

  StateMemory& memory() { return memory_; }
  const StateMemory& memory() const { return memory_; }
  // The chunks of a unit in their order, and the flat that a chunk is of.
  std::vector<int> chunks_of(int unit) const;
  const FlatLayout& flat_of(int chunk) const;
  // Where chunk `index` has its moment, or its master, of an element.
  size_t moment_offset(int which, int index, int64_t element) const;
  size_t master_offset(int index, int64_t element) const;
  // Where the device cannot reach all states: what works on those that it cannot. On a rank that computes in host
  // memory: what works on states of the host tier beside it, where they are updated ahead. Null else.
  Queue* host_queue() const { return host_.get(); }
  // The queue that reaches the chunk's states between steps.
  Queue& queue_of(int chunk) const;

 private:
  // The chunks of one flat, and the elements whose states this rank keeps in them.
  struct Flat {
    int first_chunk = 0, last_chunk = 0;  // one past the last
    int64_t begin = 0, end = 0;
  };

  // Whether a flat has masters beside its weights.
  bool has_masters(const FlatLayout& flat) const;
  // Elements of the flat whose weights this rank keeps.
  Range weight_range(int unit, int flat, const Weights& weights) const;
  // The part of each chunk that has elements of the range: use(chunk index, from element, to element).
  void for_chunks(int unit, int flat, Range range, const std::function<void(int, int64_t, int64_t)>& use) const;

  const ModelLayout& layout_;
  int moments_;
  DType moment_dtype_;
  bool narrow_masters_;
  Queue& queue_;
  std::unique_ptr<Queue> host_;
  std::vector<std::vector<Flat>> flats_;  // of each unit
  StateMemory memory_;
};

}  // namespace shoal
