// The queue on which a rank computes: in host memory on as many threads as torch uses, on a GPU torch's current stream.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "device/queue.h"

namespace shoal {

// The number of threads is torch's now; the stream is the one that is current in the calling thread now.
std::unique_ptr<Queue> make_compute_queue(at::Device device);

// The stream of a GPU that is current in the calling thread, a cudaStream_t; null in host memory.
void* current_stream(at::Device device);

}  // namespace shoal
