// Sums whose order is part of the contract: the mean over ranks, and the sum of squares for the gradient norm.
#pragma once

#include <cstdint>

#include "shoal/dtype.h"

namespace shoal::kernels {

// out[i] = round(post * (pre * src[0][i] + pre * src[1][i] + ...)), in fp32, in the order given, one rounding to
// `out_dtype`; with accumulate, the fp32 product is added to fp32(out[i]) and the sum rounded once.
// `out` may be the same memory as one of the sources.
struct OrderedMean {
  const void* const* sources = nullptr;
  int source_count = 0;
  DType source_dtype = DType::f32;
  void* out = nullptr;
  DType out_dtype = DType::f32;
  int64_t numel = 0;
  float pre = 1.0f;
  float post = 1.0f;
  bool accumulate = false;
};
void ordered_mean(const OrderedMean& args);

// Elements per block of the norm's contract. A block always begins at a multiple of this from the shard's begin.
inline constexpr int64_t kNormBlock = 4096;

// sums[b] = sum of squares of block b in fp64: eight lanes, lane j takes elements j, j+8, ... in order;
// the lanes are then added in order 0..7. `sums` has ceil(numel / kNormBlock) entries.
void sum_squares(const void* values, DType dtype, int64_t numel, double* sums);

}  // namespace shoal::kernels
