// The stream a kernel is queued on, for callers that see no CUDA header.
#pragma once

namespace shoal::kernels::cuda {

using Stream = void*;  // a cudaStream_t; null is the default stream

}  // namespace shoal::kernels::cuda
