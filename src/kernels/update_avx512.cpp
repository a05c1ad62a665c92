// The AVX-512 version of the fused updates: update_body.h on the vectors of lanes_avx512.h.
#include "kernels/lanes_avx512.h"

#include "kernels/isa_parts.h"
#include "kernels/update_body.h"

namespace shoal::kernels {

UpdateKernels update_avx512() { return update_kernels<Avx512>(); }

}  // namespace shoal::kernels
