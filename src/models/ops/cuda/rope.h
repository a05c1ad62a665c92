// Rotary positions for q and k in one launch, in the layout that comes out of the projections: [rows, heads, dim],
// where row r is position r % time. Dimension i turns with i + dim / 2.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "shoal/dtype.h"

namespace shoal::models::ops::cuda {

using kernels::cuda::Stream;

// One of q and k. `in` and `out` may be the same memory.
struct RopeSide {
  const void* in = nullptr;  // heads of a row lie side by side
  void* out = nullptr;
  int64_t heads = 0;
  int64_t in_stride = 0, out_stride = 0;  // elements from a row to the next
};

struct Rope {
  RopeSide q, k;
  const float* cos = nullptr;  // [time, dim / 2]
  const float* sin = nullptr;
  int64_t rows = 0, time = 0, dim = 0;
  bool inverse = false;  // turn back: the gradient
  DType dtype = DType::f32;
};
void rope(const Rope& args, Stream stream);

}  // namespace shoal::models::ops::cuda
