// The decision of kernels/decide.h on device memory, queued on a stream: the same bits, and the host waits for nothing.
#pragma once

#include "kernels/cuda/stream.h"
#include "kernels/decide.h"
#include "kernels/update.h"

namespace shoal::kernels::cuda {

// A choice of constants for any optimizer.
using AnyChoice = EveryStep::Variant<StepChoice>;

// Decides, then picks the constants of every group.
void decide(const Decision& decision, const AnyChoice& choice, Stream stream);

}  // namespace shoal::kernels::cuda
