// See compute_queue.h.
#include "shard/compute_queue.h"

#include <ATen/Parallel.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "device/cuda_queue.h"
#include "device/host_queue.h"

namespace shoal {

namespace {

constexpr int64_t kGrain = 32 * 1024;  // elements; below this one thread does it all

// Elementwise work only: results do not depend on where the cuts fall.
void on_torch_threads(int64_t numel, const std::function<void(int64_t, int64_t)>& work) {
  if (numel > 0) at::parallel_for(0, numel, kGrain, work);
}

}  // namespace

std::unique_ptr<Queue> make_compute_queue(at::Device device) {
  if (!device.is_cuda()) return make_host_queue(on_torch_threads);
  const c10::impl::VirtualGuardImpl guard(device.type());
  return make_cuda_queue(device.index(), guard.getStream(device).native_handle());
}

}  // namespace shoal
