// Stands in for kernels/cuda/reduce.cu where there is no nvcc.
#include "kernels/cuda/reduce.h"

#include "kernels/no_cuda/missing.h"

namespace shoal::kernels::cuda {

void ordered_fold(const OrderedFold&, Stream) { throw_no_cuda(); }
void sum_squares(const void*, DType, int64_t, int64_t, double*, Stream) { throw_no_cuda(); }
void sum_pieces(const PieceSums*, int, Stream) { throw_no_cuda(); }

}  // namespace shoal::kernels::cuda
