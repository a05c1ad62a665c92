// The queue in host memory: work is done when the call returns.
#pragma once

#include <functional>
#include <memory>

#include "device/queue.h"

namespace shoal {

// Calls work(begin, end) for spans that cover [0, numel), maybe on several threads.
using ParallelFor = std::function<void(int64_t numel, const std::function<void(int64_t begin, int64_t end)>& work)>;

// In the calling thread alone.
void in_one_span(int64_t numel, const std::function<void(int64_t, int64_t)>& work);

std::unique_ptr<Queue> make_host_queue(ParallelFor parallel_for = in_one_span);

}  // namespace shoal
