// The AVX-512 version of the ordered sums: reduce_body.h on the vectors of lanes_avx512.h.
#include "kernels/lanes_avx512.h"

#include "kernels/isa_parts.h"
#include "kernels/reduce_body.h"

namespace shoal::kernels {

ReduceKernels reduce_avx512() { return reduce_kernels<Avx512, Avx512Squares, 4>(); }

}  // namespace shoal::kernels
