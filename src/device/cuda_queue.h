// The queue on a GPU: work is put on a stream, in order, and done later.
#pragma once

#include <memory>

#include "device/cuda.h"
#include "device/queue.h"

namespace shoal {

// On a stream of this GPU, which outlives the queue. Work may be given by one thread at a time.
std::unique_ptr<Queue> make_cuda_queue(int device, cuda::StreamHandle stream, ParallelFor on_host = in_one_span);

}  // namespace shoal
