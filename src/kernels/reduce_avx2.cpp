// The AVX2 version of the ordered sums: reduce_body.h on the vectors of lanes_avx2.h.
#include "kernels/lanes_avx2.h"

#include "kernels/isa_parts.h"
#include "kernels/reduce_body.h"

namespace shoal::kernels {

ReduceKernels reduce_avx2() { return reduce_kernels<Avx2, Avx2Squares, 2>(); }

}  // namespace shoal::kernels
