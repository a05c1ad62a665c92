// The queue in host memory: work is done when the call returns.
#pragma once

#include <functional>
#include <memory>

#include "device/queue.h"

namespace shoal {

std::unique_ptr<Queue> make_host_queue(ParallelFor parallel_for = in_one_span);

}  // namespace shoal
