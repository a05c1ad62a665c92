// What every kernel file does around a launch: checks of arguments, and errors of the runtime as ours.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "kernels/cuda/stream.h"
#include "shoal/error.h"

namespace shoal::kernels::cuda {
namespace {

inline cudaStream_t stream_of(Stream stream) { return static_cast<cudaStream_t>(stream); }

inline void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw Error("cuda", std::string(what) + " failed: " + cudaGetErrorString(error) +
                          ". An earlier kernel may be the cause; set CUDA_LAUNCH_BLOCKING=1 to find it.");
}

// After a launch.
inline void check_launch(const char* kernel) { check_cuda(cudaGetLastError(), kernel); }

// A CPU reads an element at any address; a GPU fails, and every call after it.
inline void check_element_alignment(const void* memory, size_t element_nbytes) {
  SHOAL_CHECK_EQ(reinterpret_cast<uintptr_t>(memory) % element_nbytes, 0u);
}

}  // namespace
}  // namespace shoal::kernels::cuda
