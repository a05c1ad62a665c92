// The trust ratios of kernels/trust_ratio.h on device memory, queued on a stream: the same bits.
#pragma once

#include "kernels/cuda/stream.h"
#include "kernels/trust_ratio.h"

namespace shoal::kernels::cuda {

void trust_ratios(const TrustRatios& args, Stream stream);

}  // namespace shoal::kernels::cuda
