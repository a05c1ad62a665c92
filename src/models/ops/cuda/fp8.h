// Numbers of 8 bits for matmuls: the largest magnitude of a tensor (or of each row and column), scales from it, and the
// tensor divided by its scale, rounded and laid out both ways round. The host waits for nothing.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "shoal/dtype.h"

namespace shoal::models::ops::cuda {

using kernels::cuda::Stream;

enum class Fp8 : uint8_t { e4m3, e5m2 };

// Whether the current device multiplies fp8 (compute capability 8.9 or later).
bool multiplies_fp8();

struct Fp8Input {
  const void* x = nullptr;  // [rows, columns], 16-byte aligned
  int64_t rows = 0;
  int64_t columns = 0;  // a multiple of 8
  DType dtype = DType::f32;
};

// x in 8 bits: out = round(x / scale), saturating, and the scales, by which out is multiplied to get x back: largest
// magnitude / largest number of the format, and never 0. Either side may be null.
struct ToFp8 {
  Fp8Input input;
  Fp8 format = Fp8::e4m3;
  void* out = nullptr;         // [rows, columns]
  void* transposed = nullptr;  // [columns, padded_rows], zeros past the rows
  int64_t padded_rows = 0;     // a multiple of 16
  // By line: a scale for each row of `out`, and one for each column of x, a row of `transposed`. Else one for all of x
  // at out_scales, also where there is no `out`.
  bool by_line = false;
  float* out_scales = nullptr;
  float* transposed_scales = nullptr;
};
void to_fp8(const ToFp8& args, Stream stream);

}  // namespace shoal::models::ops::cuda
