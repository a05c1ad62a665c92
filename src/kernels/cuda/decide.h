// The decision of kernels/decide.h on device memory, queued on a stream: the same bits, and the host waits for nothing.
#pragma once

#include "kernels/cuda/stream.h"
#include "kernels/decide.h"
#include "kernels/update.h"

namespace shoal::kernels::cuda {

// Decides, then picks the constants of every group.
void decide(const Decision& decision, const StepChoice<AdamStep>& choice, Stream stream);
void decide(const Decision& decision, const StepChoice<SgdStep>& choice, Stream stream);
void decide(const Decision& decision, const StepChoice<AdagradStep>& choice, Stream stream);
void decide(const Decision& decision, const StepChoice<LionStep>& choice, Stream stream);

}  // namespace shoal::kernels::cuda
