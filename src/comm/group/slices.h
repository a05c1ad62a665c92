// How an all-reduce cuts its elements over the ranks: even slices, the last ones shorter or empty.
#pragma once

#include <algorithm>
#include <cstdint>

namespace shoal {

struct Slice {
  int64_t begin = 0;
  int64_t numel = 0;
};

inline int64_t slice_stride(int64_t numel, int world) { return (numel + world - 1) / world; }

inline Slice slice_of(int64_t numel, int world, int rank) {
  const int64_t stride = slice_stride(numel, world);
  const int64_t begin = std::min(numel, stride * rank);
  return {begin, std::min(stride, numel - begin)};
}

}  // namespace shoal
