// Checks of the GPUs: driver, torch's CUDA library, NCCL, free memory, whether our kernels run, and how fast bytes move
// on and to each of them.
#pragma once

#include <string>
#include <vector>

#include "device/cuda.h"
#include "doctor/findings.h"

namespace shoal::doctor {

std::vector<Finding> check_gpus();

Finding judge_driver(const cuda::Versions& versions);

// What a GPU's free memory and its bus mean, apart from measuring them. Rates in bytes a second.
struct GpuMeasures {
  int index = 0;
  std::string name;
  int major = 0, minor = 0;
  size_t total_nbytes = 0, free_nbytes = 0;
  double on_device = 0;  // copy on the GPU, read and write counted
  double to_device = 0, from_device = 0;
  std::string kernel_trouble;  // why a kernel of ours does not run there; "": it does
};
std::vector<Finding> judge_gpu(const GpuMeasures& gpu);

}  // namespace shoal::doctor
