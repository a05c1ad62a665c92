// A kernel that begins before the one that it follows on its stream has ended.
//
// [Note: kernels that begin early]
// Between two kernels of a stream a GPU stands still for a few microseconds, which is much beside one of fifty. A kernel
// launched by launch_early() begins as soon as all blocks of the kernel before it have called let_next_kernel_begin(),
// or ended, and there is room. It may read at once what was ready before that kernel began, and calls
// wait_for_kernel_before(), in every thread, before it reads what that kernel wrote or writes anything itself. So both
// are launched by one function, which knows what lies between them: nothing. (One that waits before all else may come
// behind any kernel.)
//
// Compute capability 9.0 can do it. A build for an older one as well launches such kernels as any other.
#pragma once

#include <cuda_runtime.h>

#include <initializer_list>

#include "kernels/cuda/launch.cuh"

namespace shoal::models::ops::cuda {

using kernels::cuda::check_cuda;
using kernels::cuda::stream_of;
using kernels::cuda::Stream;

namespace {

constexpr bool are_at_least_90(std::initializer_list<int> architectures) {
  for (const int architecture : architectures) {
    if (architecture < 900) return false;
  }
  return true;
}
constexpr bool kBeginsEarly = are_at_least_90({__CUDA_ARCH_LIST__});  // what this file is compiled for

template <typename... Parameters, typename... Arguments>
void launch_early(void (*kernel)(Parameters...), const char* name, dim3 blocks, dim3 threads, Stream stream,
                  const Arguments&... arguments) {
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.stream = stream_of(stream);
  config.attrs = &early;
  config.numAttrs = kBeginsEarly ? 1 : 0;
  check_cuda(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), name);
}

__device__ __forceinline__ void let_next_kernel_begin() {
  if constexpr (kBeginsEarly) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
__device__ __forceinline__ void wait_for_kernel_before() {
  if constexpr (kBeginsEarly) asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace
}  // namespace shoal::models::ops::cuda
