// The NEON version of blocks: blocks_body.h on the vectors of lanes_neon.h.
#include "kernels/lanes_neon.h"

#include "kernels/blocks_body.h"
#include "kernels/isa_parts.h"

namespace shoal::kernels {

BlockKernels blocks_neon() { return block_kernels<Neon>(); }

}  // namespace shoal::kernels
