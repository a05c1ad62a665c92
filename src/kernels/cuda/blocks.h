// The blocks of kernels/blocks.h on device memory, queued on a stream: the same bits, except which NaN a NaN is among
// elements. Elements may have any alignment of theirs, blocks lie at multiples of 4 bytes; elements of a block that lie
// at a multiple of four elements are what makes it fast.
#pragma once

#include <cstdint>

#include "kernels/blocks.h"
#include "kernels/cuda/stream.h"
#include "shoal/dtype.h"

namespace shoal::kernels::cuda {

// Blocks share memory with their elements as on the host: where they begin, or, back again, where they end; then it
// takes several launches (kernels/in_place.h). Else they lie apart.
void quantize(const void* values, DType dtype, int64_t numel, int bits, void* blocks, Stream stream);
void dequantize(const void* blocks, int bits, void* values, DType dtype, int64_t numel, Stream stream);
void quantize_with_errors(const float* values, int64_t numel, int bits, void* blocks, const ErrorFeedback& feedback,
                          Stream stream);

// Any number of slices.
void fold_blocks(const BlockFold& args, Stream stream);

}  // namespace shoal::kernels::cuda
