// Rotary positions: the angle by which each pair of dimensions turns with the position, plain or stretched for long
// contexts as Llama 3.1 does it. Pairs are dimension i and i + dim / 2, as in Hugging Face checkpoints.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "models/ops/rotary.h"

namespace shoal::models {

// Llama 3.1: slow turns are slower by `factor`, fast ones stay, those between change over smoothly.
struct Llama3Scaling {
  double factor = 8;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_positions = 8192;
};

struct RopeConfig {
  double theta = 10000;
  std::optional<Llama3Scaling> scaling = {};
};

// Radians a position, for each of dim / 2 pairs; in fp32 as transformers computes them.
std::vector<float> rope_frequencies(const RopeConfig& config, int64_t dim);

ops::RotaryTable make_rope_table(const std::vector<float>& frequencies, int64_t time, at::ScalarType dtype);

// The table of a model, made once and kept on the device that asks for it; made anew when a sequence is longer.
class RopeTables {
 public:
  explicit RopeTables(std::vector<float> frequencies) : frequencies_(std::move(frequencies)) {}

  // For q and k of the dtype and on the device of x.
  ops::RotaryTable table(int64_t time, const at::Tensor& x) const;

 private:
  std::vector<float> frequencies_;
  mutable std::mutex mutex_;
  mutable ops::RotaryTable kept_;
};

}  // namespace shoal::models
