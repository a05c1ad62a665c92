// The NEON version of the ordered sums: reduce_body.h on the vectors of lanes_neon.h.
#include "kernels/lanes_neon.h"

#include "kernels/isa_parts.h"
#include "kernels/reduce_body.h"

namespace shoal::kernels {

ReduceKernels reduce_neon() { return reduce_kernels<Neon, NeonSquares, 1>(); }

}  // namespace shoal::kernels
