// Copies from device to shared memory that a thread starts and waits for later, in groups that end in the order in
// which they were begun. A thread that reads only what it copied itself needs no barrier.
#pragma once

#include <cstdint>

#include "models/ops/cuda/pack.cuh"

namespace shoal::models::ops::cuda {
namespace {

// Packs of less than 16 bytes are copied at once.
template <typename T, int kWidth>
__device__ __forceinline__ void copy_ahead(Pack<T, kWidth>* to, const void* memory, int64_t element) {
  const T* from = static_cast<const T*>(memory) + element;
  if constexpr (sizeof(Pack<T, kWidth>) == 16) {
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
  } else {
    *to = *reinterpret_cast<const Pack<T, kWidth>*>(from);
  }
}
// Ends a group, which may be empty.
__device__ __forceinline__ void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `later` of this thread's groups, 0 to 3, are under way.
__device__ __forceinline__ void wait_for_groups(int later) {
  if (later == 0) asm volatile("cp.async.wait_group 0;" ::: "memory");
  if (later == 1) asm volatile("cp.async.wait_group 1;" ::: "memory");
  if (later == 2) asm volatile("cp.async.wait_group 2;" ::: "memory");
  if (later == 3) asm volatile("cp.async.wait_group 3;" ::: "memory");
}

}  // namespace
}  // namespace shoal::models::ops::cuda
