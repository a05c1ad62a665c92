// Rotary positions: the angle by which each pair of dimensions turns with the position, plain or stretched for long
// contexts. Pairs are dimension i and i + dim / 2, as in Hugging Face checkpoints.
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

// YaRN: the same by the number of turns within the original length; cosines and sines are scaled besides.
struct YarnScaling {
  double factor = 1;
  double attention_factor = 1;
  double beta_fast = 32, beta_slow = 1;
  int64_t original_max_positions = 0;
  bool truncate = true;  // the range between fast and slow begins and ends at whole dimensions
};

// A sequence longer than max_positions turns by a larger base, which grows with its length.
struct DynamicScaling {
  double factor = 1;
  int64_t max_positions = 0;
};

// LongRoPE: each pair has a divisor of its own, one list up to the original length and one for longer sequences.
struct LongScaling {
  std::vector<double> short_factors, long_factors;
  double attention_factor = 1;
  int64_t original_max_positions = 0;
};

struct RopeConfig {
  double theta = 10000;
  std::optional<Llama3Scaling> scaling = {};
  double partial = 1;        // the part of a head's dimensions that turns, the first ones
  double linear_factor = 1;  // all turns are slower by it
  std::optional<YarnScaling> yarn = {};
  std::optional<DynamicScaling> dynamic = {};
  std::optional<LongScaling> longrope = {};
  bool turns_in_fp32 = false;  // q and k of fewer bits are widened, turned and rounded once

  int64_t turned_of(int64_t dim) const { return static_cast<int64_t>(static_cast<double>(dim) * partial); }
};

// Radians a position, for each pair of the dimensions that turn, in a sequence of `time` tokens; in fp32 as
// transformers computes them.
std::vector<float> rope_frequencies(const RopeConfig& config, int64_t dim, int64_t time = 1);

// What cosines and sines are multiplied by.
double rope_attention_factor(const RopeConfig& config);

ops::RotaryTable make_rope_table(const std::vector<float>& frequencies, int64_t time, at::ScalarType dtype,
                                 double factor = 1);

// The table of a model, made once and kept on the device that asks for it; made anew when a sequence is longer, or of a
// length that turns otherwise.
class RopeTables {
 public:
  RopeTables(RopeConfig config, int64_t dim) : config_(std::move(config)), dim_(dim) {}

  // For q and k of the dtype and on the device of x.
  ops::RotaryTable table(int64_t time, const at::Tensor& x) const;

 private:
  RopeConfig config_;
  int64_t dim_;
  mutable std::mutex mutex_;
  mutable std::vector<float> frequencies_;  // of kept_
  mutable ops::RotaryTable kept_;
};

}  // namespace shoal::models
