// Stands in for kernels/cuda/blocks.cu where there is no nvcc.
#include "kernels/cuda/blocks.h"

#include "kernels/no_cuda/missing.h"

namespace shoal::kernels::cuda {

void quantize(const void*, DType, int64_t, int, void*, Stream) { throw_no_cuda(); }
void dequantize(const void*, int, void*, DType, int64_t, Stream) { throw_no_cuda(); }
void quantize_with_errors(const float*, int64_t, int, void*, const ErrorFeedback&, Stream) { throw_no_cuda(); }
void fold_blocks(const BlockFold&, Stream) { throw_no_cuda(); }

}  // namespace shoal::kernels::cuda
