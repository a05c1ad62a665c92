// The AVX2 version of the fused updates: update_body.h on the vectors of lanes_avx2.h.
#include "kernels/lanes_avx2.h"

#include "kernels/isa_parts.h"
#include "kernels/update_body.h"

namespace shoal::kernels {

UpdateKernels update_avx2() { return update_kernels<Avx2>(); }

}  // namespace shoal::kernels
