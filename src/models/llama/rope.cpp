// See rope.h.
#include "models/llama/rope.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <numbers>

namespace shoal::models {

namespace {

float scale_llama3(float frequency, const Llama3Scaling& scaling) {
  const double length = static_cast<double>(scaling.original_max_positions);
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < length / scaling.high_freq_factor) return frequency;
  if (wavelength > length / scaling.low_freq_factor) return static_cast<float>(frequency / scaling.factor);
  const double smooth =
      (length / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return static_cast<float>((1 - smooth) * frequency / scaling.factor + smooth * frequency);
}

}  // namespace

std::vector<float> rope_frequencies(const RopeConfig& config, int64_t dim) {
  std::vector<float> frequencies;
  for (int64_t i = 0; i < dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(dim);
    const float frequency = 1.0f / std::pow(static_cast<float>(config.theta), exponent);
    frequencies.push_back(config.scaling ? scale_llama3(frequency, *config.scaling) : frequency);
  }
  return frequencies;
}

ops::RotaryTable make_rope_table(const std::vector<float>& frequencies, int64_t time, at::ScalarType dtype) {
  const at::Tensor positions = at::arange(time, at::TensorOptions(at::kFloat));
  const at::Tensor angles = positions.unsqueeze(1).mul(at::tensor(frequencies).unsqueeze(0));
  return {angles.cos().to(dtype), angles.sin().to(dtype)};
}

ops::RotaryTable RopeTables::table(int64_t time, const at::Tensor& x) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const at::ScalarType dtype = ops::rotary_table_dtype(x);
  const at::Tensor& kept = kept_.cos;
  if (!kept.defined() || kept.size(0) < time || kept.scalar_type() != dtype || kept.device() != x.device()) {
    const ops::RotaryTable made = make_rope_table(frequencies_, time, dtype);
    kept_ = {made.cos.to(x.device()), made.sin.to(x.device())};
  }
  return {kept_.cos.narrow(0, 0, time), kept_.sin.narrow(0, 0, time)};
}

}  // namespace shoal::models
