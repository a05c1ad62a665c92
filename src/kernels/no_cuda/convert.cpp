// Stands in for kernels/cuda/convert.cu where there is no nvcc.
#include "kernels/cuda/convert.h"

#include "kernels/no_cuda/missing.h"

namespace shoal::kernels::cuda {

void convert(const void*, DType, void*, DType, int64_t, Stream) { throw_no_cuda(); }
void add(const void*, DType, void*, DType, int64_t, Stream) { throw_no_cuda(); }
void split(const float*, void*, void*, int64_t, Stream) { throw_no_cuda(); }
void join(const void*, const void*, float*, int64_t, Stream) { throw_no_cuda(); }

}  // namespace shoal::kernels::cuda
