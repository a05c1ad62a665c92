// The conversions of kernels/convert.h on device memory, queued on a stream: the same bits, except which NaN a NaN is.
// Pointers may have any element alignment; equal alignment of all of them is what makes it fast.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "shoal/dtype.h"

namespace shoal::kernels::cuda {

// out = round-to-nearest-even(in), any pair of dtypes; spans may not overlap unless they are equal.
void convert(const void* in, DType in_dtype, void* out, DType out_dtype, int64_t numel, Stream stream);

// out[i] = round(fp32(out[i]) + fp32(in[i])), any pair of dtypes.
void add(const void* in, DType in_dtype, void* out, DType out_dtype, int64_t numel, Stream stream);

// Splits fp32 masters into bf16 weights and remainders, and back. Every bit survives, those of a NaN too.
void split(const float* master, void* weight, void* remainder, int64_t numel, Stream stream);
void join(const void* weight, const void* remainder, float* master, int64_t numel, Stream stream);

}  // namespace shoal::kernels::cuda
