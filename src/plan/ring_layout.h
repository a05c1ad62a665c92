// Where chunks that pass through a piece of memory, in a fixed order, round and round, come to lie in it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shoal {

struct RingPlace {
  size_t offset = 0;
  // The last chunk before this one, going round, whose bytes lie where this one's will: it must be gone first. The
  // chunk itself where no other comes there.
  int after = 0;

  bool operator==(const RingPlace&) const = default;
};

inline constexpr size_t kRingGranule = 256;  // bytes: places begin at multiples of it

// Nobody said how large a ring is to be: it begins with a GiB, or an eighth of all chunks where that is less.
inline constexpr size_t kRingBegins = SIZE_MAX;

// The memory that such a ring takes when `wanted` bytes are allowed: enough for the largest chunk, and no more than all
// chunks need.
size_t ring_nbytes(const std::vector<size_t>& chunk_nbytes, size_t wanted);

// The places in a ring of ring_nbytes(): one after the other, from the front again where the end is too near.
std::vector<RingPlace> lay_ring(const std::vector<size_t>& chunk_nbytes, size_t ring);

// How large a ring may become that is `ring` bytes now, on a GPU that `ranks` share and on which they left `free` of
// `total` bytes: half of this rank's share of that, for steps may need more than those so far; within `budget` bytes of
// the rank, 0: no bound.
size_t grown_ring_nbytes(size_t ring, size_t free, size_t total, int ranks, size_t budget);

}  // namespace shoal
