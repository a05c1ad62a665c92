// What every transport must do, to the bit: called by each rank of any world with its group. The expected values come
// from a plain loop over what every rank brings, so ranks that agree with it agree with each other and with any
// other transport. `memory`: whether buffers come from group.allocate or from the heap (which transports may stage).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "comm/group/full_group.h"
#include "device/slab.h"
#include "shoal/group.h"

namespace shoal::testing {

enum class Memory { of_group, foreign };

const char* name_of(Memory memory);

// Memory for one case, from either source.
class Buffer {
 public:
  Buffer(Group& group, Memory memory, size_t nbytes) {
    if (memory == Memory::of_group) {
      slab_ = full(group).allocate(nbytes, std::make_shared<Ledger>(), MemoryKind::reduce_slots);
      data_ = slab_->data();
    } else {
      heap_ = std::make_shared<std::vector<std::byte>>(nbytes + 1);
      data_ = heap_->data();
    }
  }
  std::byte* data() const { return data_; }
  std::shared_ptr<const void> keep() const {
    if (slab_) return slab_;
    return heap_;
  }

 private:
  std::shared_ptr<Slab> slab_;
  std::shared_ptr<std::vector<std::byte>> heap_;
  std::byte* data_ = nullptr;
};

// What rank r brings at element i: values whose sum depends on the order and whose rounding matters in every dtype.
float brought(int rank, int64_t i, int salt);
void fill(void* memory, DType dtype, int64_t numel, int rank, int salt);

// The contract of ReduceScatter, spelled out for element i; `sum` is what stands there, times the carry.
float expected_sum(int world, DType dtype, int64_t i, int salt, std::optional<float> sum = {}, int group = 0);
bool same_element(const void* got, DType dtype, int64_t i, float expected);
void check_all_gather(Group& group, Memory memory, size_t shard_nbytes, bool in_place);

struct ReduceCase {
  DType in = DType::f32;
  DType out = DType::f32;
  int64_t shard_numel = 0;
  bool in_place = false;
  float carry = 0;
  int64_t piece_numel = 0;
  int group = 0;  // all are closed at the end
};
void check_reduce_scatter(Group& group, Memory memory, const ReduceCase& c);
void check_all_reduce(Group& group, Memory memory, DType dtype, int64_t numel);
void check_broadcast(Group& group, Memory memory, size_t nbytes, int root);

enum class Delivery { received, taken };

// Every rank brings a slice for each; either way this rank ends up with those that were brought for it, in rank order.
void check_exchange(Group& group, Memory memory, size_t slice_nbytes, Delivery way, size_t piece_nbytes = 0);

// The whole grid. `large` adds sizes beyond the staging memory, so that pieces matter.
void check_collectives(Group& group, Memory memory, bool large = false);

}  // namespace shoal::testing
