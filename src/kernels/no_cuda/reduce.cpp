// Stands in for kernels/cuda/reduce.cu where there is no nvcc.
#include "kernels/cuda/reduce.h"

#include "kernels/no_cuda/missing.h"

namespace shoal::kernels::cuda {

void ordered_mean(const OrderedMean&, Stream) { throw_no_cuda(); }
void sum_squares(const void*, DType, int64_t, double*, Stream) { throw_no_cuda(); }
void sum_in_order(const SumRun*, int, Stream) { throw_no_cuda(); }

}  // namespace shoal::kernels::cuda
