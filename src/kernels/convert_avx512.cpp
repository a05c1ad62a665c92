// The AVX-512 version of the conversions: convert_body.h on the vectors of lanes_avx512.h.
#include "kernels/lanes_avx512.h"

#include "kernels/convert_body.h"
#include "kernels/isa_parts.h"

namespace shoal::kernels {

ConvertKernels convert_avx512() { return convert_kernels<Avx512>(); }

}  // namespace shoal::kernels
