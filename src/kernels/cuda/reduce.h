// The ordered sums of kernels/reduce.h on device memory, queued on a stream: the same order and the same bits.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/reduce.h"

namespace shoal::kernels::cuda {

inline constexpr int kMostSources = 64;

// args.sources is a host array of device pointers, read before this returns. `out` may be one of the sources when both
// have the same dtype.
void ordered_mean(const OrderedMean& args, Stream stream);

// sums[b] = sum of squares of block b, by the contract in kernels/reduce.h.
void sum_squares(const void* values, DType dtype, int64_t numel, double* sums, Stream stream);

// *sum = 0.0 + values[0] + values[1] + ..., strictly in order.
struct SumRun {
  const double* values = nullptr;
  int64_t count = 0;
  double* sum = nullptr;
};
// `runs` is device memory, and so is what it points to.
void sum_in_order(const SumRun* runs, int run_count, Stream stream);

}  // namespace shoal::kernels::cuda
