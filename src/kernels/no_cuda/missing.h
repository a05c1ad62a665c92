// What the stand-ins of a build without CUDA say.
#pragma once

#include "shoal/error.h"

namespace shoal::kernels::cuda {

[[noreturn]] inline void throw_no_cuda() {
  throw Error("cuda", "this build has no CUDA. Build Shoal where nvcc is found (CUDA toolkit 13), or run on the CPU.");
}

}  // namespace shoal::kernels::cuda
