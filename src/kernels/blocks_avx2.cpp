// The AVX2 version of blocks: blocks_body.h on the vectors of lanes_avx2.h.
#include "kernels/lanes_avx2.h"

#include "kernels/blocks_body.h"
#include "kernels/isa_parts.h"

namespace shoal::kernels {

BlockKernels blocks_avx2() { return block_kernels<Avx2>(); }

}  // namespace shoal::kernels
