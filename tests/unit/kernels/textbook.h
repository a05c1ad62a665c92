// Every optimizer for the tests of its kernels: steps that are worth trying, and its formula in fp64 as a textbook has
// it. A step of EveryStep without the two does not compile.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/update_steps.h"

namespace shoal::kernels {

// One element's fp64 weight and states.
struct Textbook {
  double p = 0, first = 0, second = 0;
};

// `number` counts the steps from 1, and the constants are those of set_constants for it.

inline std::vector<AdamStep> samples(AdamStep) {
  return {{.grad_scale = 0.3f, .lr = 1e-3f, .weight_decay = 0.1f, .inv_bias1 = 2.5f, .inv_sqrt_bias2 = 7.1f},
          {.grad_scale = 1e-4f, .lr = 1e-3f, .weight_decay = 0.1f, .decoupled = false, .inv_bias1 = 1.1f}};
}
inline void follow(const AdamStep& s, int number, double grad, Textbook& t) {
  double g = grad * s.grad_scale;
  if (s.decoupled) t.p -= double(s.lr) * s.weight_decay * t.p;
  if (!s.decoupled) g += s.weight_decay * t.p;
  t.first = s.beta1 * t.first + (1 - double(s.beta1)) * g;
  t.second = s.beta2 * t.second + (1 - double(s.beta2)) * g * g;
  const double mean = t.first / (1 - std::pow(double(s.beta1), number));
  const double square = t.second / (1 - std::pow(double(s.beta2), number));
  t.p -= s.lr * mean / (std::sqrt(square) + s.eps);
}

inline std::vector<SgdStep> samples(SgdStep) {
  return {{.grad_scale = 0.3f, .lr = 0.1f},
          {.lr = 0.1f, .momentum = 0.9f, .dampening = 0.2f, .weight_decay = 0.01f},
          {.lr = 0.1f, .momentum = 0.9f, .dampening = 0.2f, .first_step = true},
          {.grad_scale = 0.3f, .lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f, .nesterov = true}};
}
inline void follow(const SgdStep& s, int number, double grad, Textbook& t) {
  double g = grad * s.grad_scale + s.weight_decay * t.p;
  if (s.momentum != 0) {
    t.first = number == 1 ? g : s.momentum * t.first + (1 - double(s.dampening)) * g;
    g = s.nesterov ? g + s.momentum * t.first : t.first;
  }
  t.p -= s.lr * g;
}

inline std::vector<AdagradStep> samples(AdagradStep) {
  return {{.grad_scale = 0.3f, .lr = 0.1f, .weight_decay = 0.01f}};
}
inline void follow(const AdagradStep& s, int, double grad, Textbook& t) {
  const double g = grad * s.grad_scale + s.weight_decay * t.p;
  t.first += g * g;
  t.p -= s.lr * g / (std::sqrt(t.first) + s.eps);
}

inline std::vector<LionStep> samples(LionStep) { return {{.grad_scale = 0.3f, .lr = 1e-3f, .weight_decay = 0.1f}}; }
inline void follow(const LionStep& s, int, double grad, Textbook& t) {
  const double g = grad * s.grad_scale;
  const double c = s.beta1 * t.first + (1 - double(s.beta1)) * g;
  t.first = s.beta2 * t.first + (1 - double(s.beta2)) * g;
  t.p -= double(s.lr) * s.weight_decay * t.p;
  t.p -= s.lr * static_cast<double>((c > 0) - (c < 0));
}

}  // namespace shoal::kernels
