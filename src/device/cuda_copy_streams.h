// Wires between host memory and a GPU: streams beside the queue's, and a few events a chunk. Copies of other streams
// have their turn in between.
#pragma once

#include <memory>

#include "device/alarm.h"
#include "device/cuda.h"
#include "device/wires.h"

namespace shoal {

// The stream is the queue's, of this GPU, and outlives the wires; so are the alarms that its waits heed.
std::unique_ptr<Wires> make_cuda_wires(int device, cuda::StreamHandle queue, int chunks,
                                       std::shared_ptr<const Alarms> alarms);

}  // namespace shoal
