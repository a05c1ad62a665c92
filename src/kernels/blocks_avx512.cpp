// The AVX-512 version of blocks: blocks_body.h on the vectors of lanes_avx512.h.
#include "kernels/lanes_avx512.h"

#include "kernels/blocks_body.h"
#include "kernels/isa_parts.h"

namespace shoal::kernels {

BlockKernels blocks_avx512() { return block_kernels<Avx512>(); }

}  // namespace shoal::kernels
