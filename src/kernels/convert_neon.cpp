// The NEON version of the conversions: convert_body.h on the vectors of lanes_neon.h.
#include "kernels/lanes_neon.h"

#include "kernels/convert_body.h"
#include "kernels/isa_parts.h"

namespace shoal::kernels {

ConvertKernels convert_neon() { return convert_kernels<Neon>(); }

}  // namespace shoal::kernels
