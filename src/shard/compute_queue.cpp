// See compute_queue.h.
#include "shard/compute_queue.h"

#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "aten/torch_version.h"
#include "base/thread_pool.h"
#include "device/cuda_queue.h"
#include "device/host_queue.h"

namespace shoal {

namespace {

constexpr int64_t kGrain = 32 * 1024;  // elements; below this one thread does it all

// Elementwise work only: results do not depend on where the cuts fall.
ParallelFor on_threads(int threads) {
  auto pool = std::make_shared<ThreadPool>(threads);  // shared with copies of the function
  return [pool](int64_t numel, const std::function<void(int64_t, int64_t)>& work) { pool->run(numel, kGrain, work); };
}

}  // namespace

std::unique_ptr<Queue> make_compute_queue(at::Device device) {
  ParallelFor on_host = on_threads(at::get_num_threads());
  if (!device.is_cuda()) return make_host_queue(std::move(on_host));
  return make_cuda_queue(device.index(), current_stream(device), std::move(on_host));
}

void* current_stream(at::Device device) {
  if (!device.is_cuda()) return nullptr;
  return native_handle_of(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

}  // namespace shoal
