// The NEON version of the fused updates: update_body.h on the vectors of lanes_neon.h.
#include "kernels/lanes_neon.h"

#include "kernels/isa_parts.h"
#include "kernels/update_body.h"

namespace shoal::kernels {

UpdateKernels update_neon() { return update_kernels<Neon>(); }

}  // namespace shoal::kernels
