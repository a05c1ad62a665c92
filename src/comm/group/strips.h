// Memory cut into equal strips, one a rank; the last ones may be short or empty. What carriers move.
#pragma once

#include <algorithm>
#include <cstddef>

#include "shoal/group.h"

namespace shoal {

// How many of `nbytes` bytes lie in strip `index`.
inline size_t strip_nbytes_at(size_t nbytes, size_t strip_nbytes, int index) {
  const size_t begin = std::min(nbytes, strip_nbytes * static_cast<size_t>(index));
  return std::min(strip_nbytes, nbytes - begin);
}

// What a rank brings to an exchange: strip d for rank d, or a single strip that all ranks read.
struct Strips {
  const std::byte* data = nullptr;
  size_t nbytes = 0;        // of data; 0: this rank only reads
  size_t strip_nbytes = 0;  // the same on every rank
  int count = 1;            // as many as ranks, or 1
  // Where strips that must be copied on their way come to lie, one behind the other by rank; null: in memory of the
  // carrier's own, a piece at a time.
  std::byte* received = nullptr;

  size_t nbytes_at(int index) const { return strip_nbytes_at(nbytes, strip_nbytes, index); }
};
using Take = std::function<void(const Exchange::Part&)>;

// What a rank brings to an all-gather, and where the strips of all come to lie.
struct Gather {
  const std::byte* own = nullptr;  // may be its place in `whole`
  std::byte* whole = nullptr;
  size_t strip_nbytes = 0;
  size_t whole_nbytes = 0;

  std::byte* place(int rank) const { return whole + static_cast<size_t>(rank) * strip_nbytes; }
  size_t nbytes_at(int rank) const { return strip_nbytes_at(whole_nbytes, strip_nbytes, rank); }
};

}  // namespace shoal
