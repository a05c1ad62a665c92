// Sums over the threads that share a row.
#pragma once

namespace shoal::models::ops::cuda {
namespace {

// Each of `values` summed over the `lanes` threads of a row, a power of two, in a fixed order and with the same bits in
// every lane. Rows of more than a warp need `shared`, a float a sum and warp of the block; it may be used again two
// calls later.
template <int kSums>
__device__ __forceinline__ void sum_over_row(float (&values)[kSums], int lanes, float* shared) {
  const auto add_from = [&](int offset) {
#pragma unroll
    for (int s = 0; s < kSums; ++s) values[s] += __shfl_xor_sync(0xffffffffu, values[s], offset);
  };
  if (lanes < 32) {
    for (int offset = lanes / 2; offset > 0; offset /= 2) add_from(offset);
    return;
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) add_from(offset);
  if (lanes == 32) return;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row_warps = lanes / 32;
  if (lane == 0) {
#pragma unroll
    for (int s = 0; s < kSums; ++s) shared[s * warps + threadIdx.x / 32] = values[s];
  }
  // The row's threads meet, and no others.
  asm volatile("bar.sync %0, %1;" ::"r"(1 + static_cast<int>(threadIdx.x) / lanes), "r"(lanes) : "memory");
  const int first = static_cast<int>(threadIdx.x) / lanes * row_warps;
#pragma unroll
  for (int s = 0; s < kSums; ++s) values[s] = shared[s * warps + first + (lane & (row_warps - 1))];
  for (int offset = row_warps / 2; offset > 0; offset /= 2) add_from(offset);
}

}  // namespace
}  // namespace shoal::models::ops::cuda
