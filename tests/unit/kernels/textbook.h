// Every optimizer for the tests of its kernels: steps that are worth trying, settings that make a difference to it, and
// its formula in fp64 as a textbook has it. A step of EveryStep without the three does not compile.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/update_steps.h"

namespace shoal::kernels {

// One element's fp64 weight and states.
struct Textbook {
  double p = 0, first = 0, second = 0;
};

// Whether a step does not shrink with the gradient: at the rate of the others such an optimizer jumps about.
template <typename Step>
inline constexpr bool kSteady = false;

// Settings that are not the defaults, so that a constant that was forgotten is seen.
inline OptimizerConfig unusual() { return {.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-4}; }

// `follow` takes grad_scale, lr and weight_decay from the step, which are a group's, and everything else from the
// config: so it finds a constant that set_constants forgets. Betas and the like are fp32 before they are anything else.
// `number` counts the steps from 1.

inline std::vector<AdamStep> samples(AdamStep) {
  return {{.grad_scale = 0.3f, .lr = 1e-3f, .weight_decay = 0.1f, .inv_bias1 = 2.5f, .inv_sqrt_bias2 = 7.1f},
          {.grad_scale = 1e-4f, .lr = 1e-3f, .weight_decay = 0.1f, .decoupled = false, .inv_bias1 = 1.1f}};
}
inline std::vector<OptimizerConfig> settings(AdamStep) {
  OptimizerConfig uncorrected = unusual();
  uncorrected.bias_correction = false;
  return {unusual(), uncorrected};
}
inline void follow(const AdamStep& s, const OptimizerConfig& c, int number, double grad, Textbook& t) {
  const double beta1 = float(c.beta1), beta2 = float(c.beta2);
  const bool decoupled = c.kind == OptimizerKind::adamw;
  double g = grad * s.grad_scale;
  if (decoupled) t.p -= double(s.lr) * s.weight_decay * t.p;
  if (!decoupled) g += s.weight_decay * t.p;
  t.first = beta1 * t.first + (1 - beta1) * g;
  t.second = beta2 * t.second + (1 - beta2) * g * g;
  const double mean = c.bias_correction ? t.first / (1 - std::pow(beta1, number)) : t.first;
  const double square = c.bias_correction ? t.second / (1 - std::pow(beta2, number)) : t.second;
  t.p -= s.lr * mean / (std::sqrt(square) + c.eps);
}

inline std::vector<SgdStep> samples(SgdStep) {
  return {{.grad_scale = 0.3f, .lr = 0.1f},
          {.lr = 0.1f, .momentum = 0.9f, .dampening = 0.2f, .weight_decay = 0.01f},
          {.lr = 0.1f, .momentum = 0.9f, .dampening = 0.2f, .first_step = true},
          {.grad_scale = 0.3f, .lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f, .nesterov = true}};
}
inline std::vector<OptimizerConfig> settings(SgdStep) {
  std::vector<OptimizerConfig> all(4, unusual());
  for (size_t i = 1; i < all.size(); ++i) all[i].momentum = 0.9;
  all[2].dampening = 0.3;
  all[3].nesterov = true;
  return all;
}
inline void follow(const SgdStep& s, const OptimizerConfig& c, int number, double grad, Textbook& t) {
  double g = grad * s.grad_scale + s.weight_decay * t.p;
  if (c.momentum != 0) {
    t.first = number == 1 ? g : c.momentum * t.first + (1 - c.dampening) * g;
    g = c.nesterov ? g + c.momentum * t.first : t.first;
  }
  t.p -= s.lr * g;
}

inline std::vector<AdagradStep> samples(AdagradStep) {
  return {{.grad_scale = 0.3f, .lr = 0.1f, .weight_decay = 0.01f}};
}
inline std::vector<OptimizerConfig> settings(AdagradStep) { return {unusual()}; }
inline void follow(const AdagradStep& s, const OptimizerConfig& c, int, double grad, Textbook& t) {
  const double g = grad * s.grad_scale + s.weight_decay * t.p;
  t.first += g * g;
  t.p -= s.lr * g / (std::sqrt(t.first) + c.eps);
}

template <>
inline constexpr bool kSteady<LionStep> = true;
inline std::vector<LionStep> samples(LionStep) { return {{.grad_scale = 0.3f, .lr = 1e-3f, .weight_decay = 0.1f}}; }
inline std::vector<OptimizerConfig> settings(LionStep) { return {unusual()}; }
inline void follow(const LionStep& s, const OptimizerConfig& c, int, double grad, Textbook& t) {
  const double beta1 = float(c.beta1), beta2 = float(c.beta2);
  const double g = grad * s.grad_scale;
  const double mixed = beta1 * t.first + (1 - beta1) * g;
  t.first = beta2 * t.first + (1 - beta2) * g;
  t.p -= double(s.lr) * s.weight_decay * t.p;
  t.p -= s.lr * static_cast<double>((mixed > 0) - (mixed < 0));
}

inline std::vector<LambStep> samples(LambStep) {
  return {{.grad_scale = 0.3f, .lr = 1e-3f, .weight_decay = 0.1f, .correction = 0.4f},
          {.lr = 1e-3f, .eps = 1e-3f, .weight_decay = 0.1f, .eps_inside_sqrt = true},
          {.lr = 1e-2f, .weight_decay = 0.1f, .correction = 0.4f, .applies = true, .ratio = 3.1f},
          {.lr = 1e-2f, .eps = 1e-3f, .eps_inside_sqrt = true, .applies = true, .ratio = 0.3f}};
}
inline std::vector<OptimizerConfig> settings(LambStep) {
  std::vector<OptimizerConfig> all(2, unusual());
  all[1].eps_inside_sqrt = true;
  return all;
}
// The first pass, which puts the update in place of the weight; what follows it is in tests/ranks/lamb_test.cpp.
inline void follow(const LambStep& s, const OptimizerConfig& c, int, double grad, Textbook& t) {
  const double beta1 = float(c.beta1), beta2 = float(c.beta2), g = grad * s.grad_scale;
  t.first = beta1 * t.first + (1 - beta1) * g;
  t.second = beta2 * t.second + (1 - beta2) * g * g;
  const double root = c.eps_inside_sqrt ? std::sqrt(t.second + c.eps) : std::sqrt(t.second) + c.eps;
  t.p = t.first / root + s.weight_decay * t.p;
}

}  // namespace shoal::kernels
