// The loss of a language model from logits, and the logits' gradient written over them, for a chunk of tokens at a
// time. Sums in fp32 (the mean over tokens in fp64) and in fixed order.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "shoal/dtype.h"

namespace shoal::models::ops::cuda {

using kernels::cuda::Stream;

inline constexpr int64_t kIgnoredTarget = -100;  // gives no loss and no gradient
// Rows of logits begin at multiples of this many elements, in 16-byte aligned memory; what pads a row may hold anything
// and is overwritten.
inline constexpr int64_t kLogitsAlignment = 8;

struct CrossEntropy {
  void* logits = nullptr;            // [rows, vocab]; with_gradient: softmax - onehot afterwards, unscaled
  const int64_t* targets = nullptr;  // [rows]
  float* losses = nullptr;           // [rows]
  int64_t rows = 0, vocab = 0;
  int64_t stride = 0;  // elements from a row to the next
  bool with_gradient = true;
  DType dtype = DType::f32;
};
// A target outside the vocabulary makes its loss, and with it the mean, NaN.
void cross_entropy(const CrossEntropy& args, Stream stream);

// *mean = sum of losses / count of targets that are not ignored; *share = 1 / that count. NaN where there is none.
void mean_loss(const float* losses, const int64_t* targets, int64_t rows, float* mean, float* share, Stream stream);

// out = round(in * *factor * *share): the gradient that forward made, times what backward is given.
struct ScaleGradient {
  const void* in = nullptr;
  void* out = nullptr;  // may be `in` where the dtypes are equal
  const float* factor = nullptr;
  const float* share = nullptr;
  int64_t numel = 0;
  DType in_dtype = DType::f32, out_dtype = DType::f32;
};
void scale_gradient(const ScaleGradient& args, Stream stream);

}  // namespace shoal::models::ops::cuda
