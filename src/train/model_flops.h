// Model FLOPs utilization (MFU): the arithmetic that a model's forward and backward ask for, beside what the devices
// could do in that time. Recomputed work does not count.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "shoal/config.h"
#include "train/options.h"
#include "train/prepare.h"

namespace shoal::train {

struct ModelFlops {
  double per_token =
      0;  // forward and backward, as PaLM counts: 6 a parameter, 12 x layers x hidden x sequence for attention
  double peak = 0;     // a second, of one rank's device; 0: not known
  std::string device;  // "cpu", or the GPU's name
};

// Of a training step. The peak is what --peak-tflops says, or that of a GPU in our list.
ModelFlops flops_of(const TrainOptions& options, const PreparedRun& run, at::Device device);

// Dense, a second, by the data sheet: tensor cores in 16 bits (an fp8 run is measured by these too), half of it with
// TF32, and the plain fp32 of a run without. 0 for a GPU that is not in the list.
double peak_flops_of(const std::string& gpu, Precision precision, bool tf32);

// What MFU is for one token a second; 0 where the peak is not known.
double mfu_per_token(const ModelFlops& flops, int ranks);

}  // namespace shoal::train
