// The hop of a reduction whose sums travel in blocks: see [Note: quantized sums] in schedule/route.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/queue.h"
#include "device/slab.h"
#include "kernels/blocks.h"
#include "schedule/route.h"
#include "shoal/group.h"

namespace shoal {

// Where sums lie on their way from one hop to the next, and how they become blocks there.
struct SumsOnWay {
  std::shared_ptr<Slab> memory;  // of sums_nbytes(route); null: they do not stop
  // On which the collectives of the groups run, and which outlives them. Null where sums travel in fp32 alone.
  Queue* queue = nullptr;
  kernels::ErrorFeedback feedback = {};  // what rounding took from earlier ones
};

// fp32 sums, `numel` of them, become blocks where they are: they take less than half of the memory, and begin where the
// sums began. The second half is free for the blocks of others.
void quantize_sums(const SumsOnWay& sums, int64_t numel, int bits);

// Exchanges such blocks, and folds what the ranks of the group sent, this one too, in their order in fp32; `last` says
// what becomes of the sum.
Handle exchange_quantized(const Hop& hop, Group& group, ReduceScatter last, const SumsOnWay& sums);

}  // namespace shoal
