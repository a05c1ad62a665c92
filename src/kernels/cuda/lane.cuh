// A GPU's thread as a vector of one lane, for the formulas of kernels/update_formulas.h. The members mean what
// kernels/lanes_one.h says; each is one IEEE operation.
#pragma once

namespace shoal::kernels::cuda {
namespace {

struct DeviceLane {
  using F = float;

  __device__ static F set(float value) { return value; }
  __device__ static F mul(F a, F b) { return __fmul_rn(a, b); }
  __device__ static F add(F a, F b) { return __fadd_rn(a, b); }
  __device__ static F sub(F a, F b) { return __fsub_rn(a, b); }
  __device__ static F div(F a, F b) { return __fdiv_rn(a, b); }
  __device__ static F fma(F a, F b, F c) { return __fmaf_rn(a, b, c); }
  __device__ static F fnma(F a, F b, F c) { return __fmaf_rn(-a, b, c); }
  __device__ static F sqrt(F a) { return __fsqrt_rn(a); }
  __device__ static F signed_as(F magnitude, F a) { return a > 0 ? magnitude : a < 0 ? -magnitude : 0.0f; }
};

}  // namespace
}  // namespace shoal::kernels::cuda
