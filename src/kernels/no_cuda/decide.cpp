// Stands in for kernels/cuda/decide.cu where there is no nvcc.
#include "kernels/cuda/decide.h"

#include "kernels/no_cuda/missing.h"

namespace shoal::kernels::cuda {

void decide(const Decision&, const AnyChoice&, Stream) { throw_no_cuda(); }

}  // namespace shoal::kernels::cuda
