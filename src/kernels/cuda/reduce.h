// The ordered sums of kernels/reduce.h on device memory, queued on a stream: the same order and the same bits.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/reduce.h"

namespace shoal::kernels::cuda {

inline constexpr int kMostSources = 64;

// args.sources is a host array of device pointers, read before this returns. `out` may be one of the sources when both
// have the same dtype.
void ordered_fold(const OrderedFold& args, Stream stream);

void sum_squares(const void* values, DType dtype, int64_t numel, int64_t first_run, double* pieces, Stream stream);

// `ranges` is device memory, and so is what it points to.
void sum_pieces(const PieceSums* ranges, int range_count, Stream stream);

}  // namespace shoal::kernels::cuda
