// The functions between two matrices of a feed-forward layer, forward and backward, element by element: SwiGLU
// (silu(gate) * up) and GELU, exact or by tanh. Arithmetic in fp32, one rounding a result.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "shoal/dtype.h"

namespace shoal::models::ops::cuda {

using kernels::cuda::Stream;

struct SwigluForward {
  const void* gate = nullptr;
  const void* up = nullptr;
  void* y = nullptr;
  int64_t numel = 0;
  DType dtype = DType::f32;
};
void swiglu(const SwigluForward& args, Stream stream);

struct SwigluBackward {
  const void* gate = nullptr;
  const void* up = nullptr;
  const void* dy = nullptr;
  void* dgate = nullptr;  // may be gate's memory
  void* dup = nullptr;    // may be up's memory
  void* y = nullptr;      // or null: forward's result once more; may be dy's memory
  int64_t numel = 0;
  DType dtype = DType::f32;
};
void swiglu_backward(const SwigluBackward& args, Stream stream);

enum class Gelu : uint8_t { exact, tanh };

struct GeluForward {
  const void* x = nullptr;
  void* y = nullptr;
  int64_t numel = 0;
  Gelu kind = Gelu::tanh;
  DType dtype = DType::f32;
};
void gelu(const GeluForward& args, Stream stream);

struct GeluBackward {
  const void* x = nullptr;
  const void* dy = nullptr;
  void* dx = nullptr;
  int64_t numel = 0;
  Gelu kind = Gelu::tanh;
  DType dtype = DType::f32;
};
void gelu_backward(const GeluBackward& args, Stream stream);

}  // namespace shoal::models::ops::cuda
