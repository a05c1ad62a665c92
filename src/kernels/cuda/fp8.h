// Numbers of 8 bits for matmuls: the largest magnitude of a tensor (or of each row and column), scales from it, and the
// tensor divided by its scale, rounded and laid out both ways round. Nothing waits for the device.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "shoal/dtype.h"

namespace shoal::kernels::cuda {

enum class Fp8 : uint8_t { e4m3, e5m2 };

// Whether the current device multiplies fp8 (compute capability 8.9 or later).
bool multiplies_fp8();

struct Fp8Input {
  const void* x = nullptr;  // [rows, columns], 16-byte aligned
  int64_t rows = 0;
  int64_t columns = 0;  // a multiple of 8
  DType dtype = DType::f32;
};

// Scales, by which the 8-bit values are multiplied to get x back: largest magnitude / largest number of the format, and
// never 0. One for the tensor; or one a row and one a column, where either pointer may be null.
void fp8_scale(const Fp8Input& input, Fp8 format, float* scale, Stream stream);
void fp8_scales(const Fp8Input& input, Fp8 format, float* row_scales, float* column_scales, Stream stream);

// out = round(x / scale), saturating. Either result may be null. A step of 0 takes scale [0] for all, of 1 one each.
struct QuantizeFp8 {
  Fp8Input input;
  Fp8 format = Fp8::e4m3;
  void* out = nullptr;         // [rows, columns]
  void* transposed = nullptr;  // [columns, padded_rows], zeros past the rows
  int64_t padded_rows = 0;     // a multiple of 16
  const float* out_scales = nullptr;
  const float* transposed_scales = nullptr;
  int out_step = 0, transposed_step = 0;
};
void quantize_fp8(const QuantizeFp8& args, Stream stream);

}  // namespace shoal::kernels::cuda
