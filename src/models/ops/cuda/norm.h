// RMSNorm and LayerNorm over rows, forward and backward, on device memory; optionally with the residual addition before
// the norm. Arithmetic in fp32, one rounding a result. No result depends on timing: two runs give the same bits.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "shoal/dtype.h"

namespace shoal::models::ops::cuda {

using kernels::cuda::Stream;

inline constexpr int64_t kMostNormColumns = 16384;

// y = norm(x) * weight (+ bias). With a residual: sum = round(x + residual), y = norm(sum) * weight.
struct NormForward {
  const void* x = nullptr;         // [rows, columns]
  const void* residual = nullptr;  // like x, or null
  void* sum = nullptr;             // like x; with a residual
  const void* weight = nullptr;    // [columns]
  const void* bias = nullptr;      // [columns] or null; layer_norm only
  void* y = nullptr;               // like x
  float* mean = nullptr;           // [rows]; layer_norm only
  float* rstd = nullptr;           // [rows]: 1 / sqrt(mean square, or variance, + eps)
  int64_t rows = 0, columns = 0;
  float eps = 0;
  DType dtype = DType::f32;  // of all void pointers
};
void rms_norm(const NormForward& args, Stream stream);
void layer_norm(const NormForward& args, Stream stream);

// From what forward normed (x, or the sum where there was a residual), dy, and what it kept.
struct NormBackward {
  const void* x = nullptr;       // [rows, columns]
  const void* weight = nullptr;  // [columns]
  const float* mean = nullptr;   // [rows]; layer_norm only
  const float* rstd = nullptr;   // [rows]
  const void* dy = nullptr;      // like x
  const void* dsum = nullptr;    // like x, or null: a gradient of x from elsewhere, added to dx
  void* dx = nullptr;            // like x
  void* dweight = nullptr;       // [columns]
  void* dbias = nullptr;         // [columns] or null; layer_norm only
  float* partials = nullptr;     // norm_partials_numel(...) floats to work in
  int64_t rows = 0, columns = 0;
  DType dtype = DType::f32;
  // Bytes of shared memory that a block may take; 0: what the device has. With less the bits are the same, and slower:
  // it stands for another GPU in tests.
  int block_shared = 0;
};
void rms_norm_backward(const NormBackward& args, Stream stream);
void layer_norm_backward(const NormBackward& args, Stream stream);

int64_t norm_partials_numel(int64_t rows, int64_t columns, bool with_bias);

}  // namespace shoal::models::ops::cuda
