// The queue on which a rank computes: torch's threads in host memory, torch's current stream on a GPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "device/queue.h"

namespace shoal {

// The stream is the one that is current in the calling thread now.
std::unique_ptr<Queue> make_compute_queue(at::Device device);

}  // namespace shoal
