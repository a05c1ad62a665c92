// For tests that train on a GPU through torch: opens it once, in deterministic mode; skips with the reason without one.
#pragma once

#include <gtest/gtest.h>

#include "device/cuda.h"
#include "shoal/device.h"

namespace shoal::testing {

inline at::Device gpu() {
  static const at::Device device = [] {
    const at::Device opened = open_device("cuda");
    make_deterministic(opened);
    return opened;
  }();
  return device;
}

// Before anything asks torch for CUDA: it looks for the library once.
inline const bool kOpenedFirst = cuda::device_count() > 0 && gpu().is_cuda();

}  // namespace shoal::testing

#define SHOAL_NEEDS_GPU() \
  if (::shoal::cuda::device_count() == 0) GTEST_SKIP() << "no GPU: " << ::shoal::cuda::why_none()
