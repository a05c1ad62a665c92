// The AVX2 version of the conversions: convert_body.h on the vectors of lanes_avx2.h.
#include "kernels/lanes_avx2.h"

#include "kernels/convert_body.h"
#include "kernels/isa_parts.h"

namespace shoal::kernels {

ConvertKernels convert_avx2() { return convert_kernels<Avx2>(); }

}  // namespace shoal::kernels
