// Stands in for kernels/cuda/trust_ratio.cu where there is no nvcc.
#include "kernels/cuda/trust_ratio.h"

#include "kernels/no_cuda/missing.h"

namespace shoal::kernels::cuda {

void trust_ratios(const TrustRatios&, Stream) { throw_no_cuda(); }

}  // namespace shoal::kernels::cuda
