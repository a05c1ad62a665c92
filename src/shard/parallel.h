// Splits a span over torch's threads. Elementwise work only: results must not depend on where the cuts fall.
#pragma once

#include <ATen/Parallel.h>

#include <cstdint>

namespace shoal {

inline constexpr int64_t kParallelGrain = 32 * 1024;  // elements; below this one thread does it all

template <class Work>
void parallel_spans(int64_t numel, const Work& work) {
  if (numel == 0) return;
  at::parallel_for(0, numel, kParallelGrain, [&](int64_t begin, int64_t end) { work(begin, end); });
}

}  // namespace shoal
