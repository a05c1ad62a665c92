// The hop of a reduction whose sums travel in blocks: see [Note: quantized sums] in schedule/route.h. In host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/slab.h"
#include "kernels/blocks.h"
#include "schedule/route.h"
#include "shoal/group.h"

namespace shoal {

// fp32 sums, `numel` of them, become blocks where they are: they take less than half of the memory, and begin where the
// sums began. The second half is free for the blocks of others.
void quantize_sums(std::byte* sums, int64_t numel, int bits, const kernels::ErrorFeedback& feedback);

// Exchanges such blocks, and folds what the ranks of the group sent, this one too, in their order in fp32; `last` says
// what becomes of the sum.
Handle exchange_quantized(const Hop& hop, Group& group, ReduceScatter last, const std::shared_ptr<Slab>& sums);

}  // namespace shoal
