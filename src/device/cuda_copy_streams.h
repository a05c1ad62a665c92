// CopyStreams between host memory and a GPU: streams beside the queue's, and a few events a chunk. Copies of other
// streams have their turn in between.
#pragma once

#include <memory>

#include "device/alarm.h"
#include "device/copy_streams.h"
#include "device/cuda.h"

namespace shoal {

// The stream is the queue's, of this GPU, and outlives the copy streams; so are the alarms that its waits heed.
std::unique_ptr<CopyStreams> make_cuda_copy_streams(int device, cuda::StreamHandle queue, int chunks,
                                                    std::shared_ptr<const Alarms> alarms);

}  // namespace shoal
