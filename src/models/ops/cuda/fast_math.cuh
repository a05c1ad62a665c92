// Functions of the special function unit, right to about two units in the last place; results too small for fp32 are 0.
#pragma once

namespace shoal::models::ops::cuda {
namespace {

constexpr float kLog2E = 1.4426950408889634f;

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace
}  // namespace shoal::models::ops::cuda
