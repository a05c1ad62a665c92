// See rope.h.
#include "models/dense/rope.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

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

// The dimension that makes so many turns within the original length.
double dimension_of_turns(double turns, double dim, double theta, double length) {
  return dim * std::log(length / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

std::vector<float> scale_yarn(std::vector<float> frequencies, const RopeConfig& config, int64_t dim) {
  const YarnScaling& yarn = *config.yarn;
  const auto length = static_cast<double>(yarn.original_max_positions);
  const auto dims = static_cast<double>(dim);
  double low = dimension_of_turns(yarn.beta_fast, dims, config.theta, length);
  double high = dimension_of_turns(yarn.beta_slow, dims, config.theta, length);
  if (yarn.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float ramp = (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float slow = 1 - (1 - std::clamp(ramp, 0.0f, 1.0f));
    const float stretched = 1.0f / (static_cast<float>(yarn.factor) * (1.0f / frequencies[i]));
    frequencies[i] = stretched * slow + frequencies[i] * (1 - slow);
  }
  return frequencies;
}

double dynamic_theta(const RopeConfig& config, int64_t dim, int64_t time) {
  const DynamicScaling& dynamic = *config.dynamic;
  if (time <= dynamic.max_positions) return config.theta;
  const double length = static_cast<double>(time) / static_cast<double>(dynamic.max_positions);
  return config.theta * std::pow(dynamic.factor * length - (dynamic.factor - 1),
                                 static_cast<double>(dim) / static_cast<double>(dim - 2));
}

}  // namespace

std::vector<float> rope_frequencies(const RopeConfig& config, int64_t dim, int64_t time) {
  const int64_t turned = config.turned_of(dim);
  const double theta = config.dynamic ? dynamic_theta(config, turned, time) : config.theta;
  std::vector<float> frequencies;
  for (int64_t i = 0; i < turned; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(turned);
    const float turn = std::pow(static_cast<float>(theta), exponent);
    const float frequency = 1.0f / turn;
    if (config.longrope) {
      const LongScaling& scaling = *config.longrope;
      const std::vector<double>& factors =
          time > scaling.original_max_positions ? scaling.long_factors : scaling.short_factors;
      frequencies.push_back(1.0f / (static_cast<float>(factors.at(frequencies.size())) * turn));
    } else if (config.linear_factor != 1) {
      frequencies.push_back(frequency / static_cast<float>(config.linear_factor));
    } else {
      frequencies.push_back(config.scaling ? scale_llama3(frequency, *config.scaling) : frequency);
    }
  }
  return config.yarn ? scale_yarn(std::move(frequencies), config, turned) : frequencies;
}

double rope_attention_factor(const RopeConfig& config) {
  if (config.yarn) return config.yarn->attention_factor;
  return config.longrope ? config.longrope->attention_factor : 1;
}

ops::RotaryTable make_rope_table(const std::vector<float>& frequencies, int64_t time, at::ScalarType dtype,
                                 double factor) {
  const at::Tensor positions = at::arange(time, at::TensorOptions(at::kFloat));
  const at::Tensor angles = positions.unsqueeze(1).mul(at::tensor(frequencies).unsqueeze(0));
  const at::Tensor cos = angles.cos(), sin = angles.sin();
  if (factor == 1) return {cos.to(dtype), sin.to(dtype)};
  return {cos.mul(factor).to(dtype), sin.mul(factor).to(dtype)};
}

ops::RotaryTable RopeTables::table(int64_t time, const at::Tensor& x) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const at::ScalarType dtype = config_.turns_in_fp32 ? at::kFloat : ops::rotary_table_dtype(x);
  const at::Tensor& kept = kept_.cos;
  std::vector<float> frequencies = rope_frequencies(config_, dim_, time);
  if (!kept.defined() || kept.size(0) < time || kept.scalar_type() != dtype || kept.device() != x.device() ||
      frequencies != frequencies_) {
    const ops::RotaryTable made = make_rope_table(frequencies, time, dtype, rope_attention_factor(config_));
    kept_ = {made.cos.to(x.device()), made.sin.to(x.device())};
    frequencies_ = std::move(frequencies);
  }
  return {kept_.cos.narrow(0, 0, time), kept_.sin.narrow(0, 0, time)};
}

}  // namespace shoal::models
