// The optimizers as the kernels know them: one struct each with the constants of a step, how they come from the
// config, and the plain formula of one element, which is the contract. The list of them is at the end; whatever has a
// form an optimizer is made from it. C++17, since nvcc reads it so.
//
// [Note: the formulas]
// g is the gradient times grad_scale, p the fp32 weight; the roundings are those of `plain`.
//   Adam      m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
//             p = (1 - lr decay) p - lr inv_bias1 m / (sqrt(v) inv_sqrt_bias2 + eps)       decoupled (AdamW)
//             without: g += decay p first, and p is not shrunk. The learning rate and the scale are folded into the
//             constants, which saves three operations an element; a rate below kLeastRate counts as zero.
//   SGD       g += decay p;  b = momentum b + (1 - dampening) g, or g on the first step;
//             p -= lr b, or lr (g + momentum b) with nesterov, or lr g without momentum    as torch.optim.SGD
//   Adagrad   g += decay p;  s += g^2;  p -= lr g / (sqrt(s) + eps)                        as torch.optim.Adagrad
//   Lion      c = beta1 m + (1 - beta1) g;  m = beta2 m + (1 - beta2) g;  p = (1 - lr decay) p - lr sign(c)
//             sign(0) is 0, as in the paper; DeepSpeed's CPU kernel moves such a weight by lr.
//   LAMB      m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;  u = m / (sqrt(v) + eps) + decay p, or with
//             sqrt(v + eps);  p -= lr correction ratio u.                                  as DeepSpeed's FusedLamb
//             Two passes: the first moves the moments and puts u in place of p, the second makes u again and applies
//             it. The ratio is that of a parameter's norms |p| / |u|; see kernels/trust_ratio.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>
#include <variant>

#include "shoal/optimizer.h"

namespace shoal::kernels {

// Each has, beside what its formula needs: grad_scale, which multiplies every gradient first (1 / (loss scale * clip
// factor)), lr and weight_decay, which are a parameter group's; and
//   kKinds         the optimizers whose step it is
//   set_constants  everything but those three, for the step of this number, the first being 1; lr and weight_decay are
//                  set already, and `config` has the betas of this step
//   plain          updates the states of one element and returns its weight; `grad` is as stored, not scaled
//   fields         every constant, to compare

inline constexpr float kLeastRate = 0x1p-100f;  // of lr * inv_bias1

struct AdamStep {
  static constexpr OptimizerKind kKinds[] = {OptimizerKind::adamw, OptimizerKind::adam};
  float grad_scale = 1, lr = 0, beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f, weight_decay = 0;
  bool decoupled = true;     // AdamW; false: weight decay is added to the gradient
  float inv_bias1 = 1;       // 1 / (1 - beta1^t)
  float inv_sqrt_bias2 = 1;  // 1 / sqrt(1 - beta2^t)

  void set_constants(const OptimizerConfig& config, int64_t number) {
    beta1 = static_cast<float>(config.beta1);
    beta2 = static_cast<float>(config.beta2);
    eps = static_cast<float>(config.eps);
    decoupled = config.kind == OptimizerKind::adamw;
    if (!config.bias_correction) return;
    // Of the fp32 betas that the moments are made with: 1 - 0.999 is 1.3e-5 of itself away from 1 - 0.999f, and the
    // first steps would be 6e-6 of themselves too long.
    const auto t = static_cast<double>(number);
    inv_bias1 = static_cast<float>(1 / (1 - std::pow(static_cast<double>(beta1), t)));
    inv_sqrt_bias2 = static_cast<float>(1 / std::sqrt(1 - std::pow(static_cast<double>(beta2), t)));
  }

  float plain(float weight, float grad, float& first, float& second) const {
    const float scale = decoupled ? grad_scale : 1.0f;  // with L2 decay the gradient is scaled before
    const float rest1 = (1.0f - beta1) * scale;
    const float root_rest2 = std::sqrt(1.0f - beta2) * scale;
    const float keep = decoupled ? 1.0f - lr * weight_decay : 1.0f;
    const float rate = lr * inv_bias1;
    const bool moves = rate >= kLeastRate;
    const float slope = moves ? -(inv_sqrt_bias2 / rate) : 0.0f;
    const float offset = moves ? -(eps / rate) : -std::numeric_limits<float>::infinity();
    const float g = decoupled ? grad : std::fma(weight_decay, weight, grad * grad_scale);
    const float u = root_rest2 * g;
    first = std::fma(beta1, first, rest1 * g);
    second = std::fma(u, u, beta2 * second);
    const float denominator = std::fma(std::sqrt(second), slope, offset);
    return std::fma(keep, weight, first / denominator);
  }

  auto fields() const {
    const auto& [a, b, c, d, e, f, g, h, i] = *this;
    return std::tie(a, b, c, d, e, f, g, h, i);
  }
};

struct SgdStep {
  static constexpr OptimizerKind kKinds[] = {OptimizerKind::sgd};
  float grad_scale = 1, lr = 0, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  bool first_step = false;  // the momentum buffer starts as the gradient itself, as in torch

  void set_constants(const OptimizerConfig& config, int64_t number) {
    momentum = static_cast<float>(config.momentum);
    dampening = static_cast<float>(config.dampening);
    nesterov = config.nesterov;
    first_step = number == 1;
  }

  float plain(float weight, float grad, float& first, float&) const {
    float g = std::fma(weight_decay, weight, grad * grad_scale);
    if (momentum != 0) {
      first = first_step ? g : std::fma(momentum, first, (1.0f - dampening) * g);
      g = nesterov ? std::fma(momentum, first, g) : first;
    }
    return std::fma(-lr, g, weight);
  }

  auto fields() const {
    const auto& [a, b, c, d, e, f, g] = *this;
    return std::tie(a, b, c, d, e, f, g);
  }
};

struct AdagradStep {
  static constexpr OptimizerKind kKinds[] = {OptimizerKind::adagrad};
  float grad_scale = 1, lr = 0, eps = 1e-10f, weight_decay = 0;

  void set_constants(const OptimizerConfig& config, int64_t) { eps = static_cast<float>(config.eps); }

  float plain(float weight, float grad, float& first, float&) const {
    const float g = std::fma(weight_decay, weight, grad * grad_scale);
    first = std::fma(g, g, first);
    return std::fma(-lr, g / (std::sqrt(first) + eps), weight);
  }

  auto fields() const {
    const auto& [a, b, c, d] = *this;
    return std::tie(a, b, c, d);
  }
};

struct LionStep {
  static constexpr OptimizerKind kKinds[] = {OptimizerKind::lion};
  float grad_scale = 1, lr = 0, beta1 = 0.9f, beta2 = 0.99f, weight_decay = 0;

  void set_constants(const OptimizerConfig& config, int64_t) {
    beta1 = static_cast<float>(config.beta1);
    beta2 = static_cast<float>(config.beta2);
  }

  float plain(float weight, float grad, float& first, float&) const {
    const float g = grad * grad_scale;
    const float c = std::fma(beta1, first, (1.0f - beta1) * g);
    const float move = c > 0 ? lr : c < 0 ? -lr : 0.0f;
    first = std::fma(beta2, first, (1.0f - beta2) * g);
    return weight * (1.0f - lr * weight_decay) - move;
  }

  auto fields() const {
    const auto& [a, b, c, d, e] = *this;
    return std::tie(a, b, c, d, e);
  }
};

struct LambStep {
  static constexpr OptimizerKind kKinds[] = {OptimizerKind::lamb};
  float grad_scale = 1, lr = 0, beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f, weight_decay = 0;
  bool eps_inside_sqrt = false;
  float correction = 1;  // sqrt(1 - beta2^t) / (1 - beta1^t), for the moments' start at zero
  float max_coeff = 10, min_coeff = 0.01f;
  bool applies = false;  // the second pass
  float ratio = 1;       // of the second pass

  void set_constants(const OptimizerConfig& config, int64_t number) {
    beta1 = static_cast<float>(config.beta1);
    beta2 = static_cast<float>(config.beta2);
    eps = static_cast<float>(config.eps);
    eps_inside_sqrt = config.eps_inside_sqrt;
    max_coeff = static_cast<float>(config.max_coeff);
    min_coeff = static_cast<float>(config.min_coeff);
    if (!config.bias_correction) return;
    const auto t = static_cast<double>(number);
    correction = static_cast<float>(std::sqrt(1 - std::pow(static_cast<double>(beta2), t)) /
                                    (1 - std::pow(static_cast<double>(beta1), t)));
  }

  float plain(float weight, float grad, float& first, float& second) const {
    if (!applies) {
      const float g = grad * grad_scale;
      first = std::fma(beta1, first, (1.0f - beta1) * g);
      second = std::fma((1.0f - beta2) * g, g, beta2 * second);
    }
    const float root = eps_inside_sqrt ? std::sqrt(second + eps) : std::sqrt(second) + eps;
    const float update = std::fma(weight_decay, weight, first / root);
    return applies ? std::fma(-(lr * correction * ratio), update, weight) : update;
  }

  auto fields() const {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l] = *this;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
  }
};

// A list of types, and what is made of it.
template <class... Step>
struct StepList {
  // One Of<Step> of them.
  template <template <class> class Of>
  using Variant = std::variant<Of<Step>...>;
  // All Of<Step> as bases of one struct.
  template <template <class> class Of>
  struct Bases : Of<Step>... {};

  static constexpr size_t kMostNbytes = std::max({sizeof(Step)...});

  template <class Body>
  static void for_each(const Body& body) {
    (body(Step{}), ...);
  }
  // Calls body(Step{}) with the step of this optimizer.
  template <class Body>
  static void call_for(OptimizerKind kind, const Body& body) {
    const auto call_if_it_is = [&](auto step) {
      for (const OptimizerKind each : step.kKinds) {
        if (each == kind) body(step);
      }
    };
    (call_if_it_is(Step{}), ...);
  }
  // Whether each optimizer of the public list has one step here, with the states of its row.
  static constexpr bool is_complete() {
    for (const OptimizerRow& row : kOptimizers) {
      if ((count_of<Step>(row) + ...) != 1) return false;
    }
    return true;
  }

 private:
  template <class One>
  static constexpr int count_of(const OptimizerRow& row) {
    int count = 0;
    for (const OptimizerKind kind : One::kKinds) {
      const bool alike = row.states() == optimizer_row(One::kKinds[0]).states();
      count += kind == row.kind && alike ? 1 : 0;
    }
    return count;
  }
};

using EveryStep = StepList<AdamStep, SgdStep, AdagradStep, LionStep, LambStep>;
static_assert(EveryStep::is_complete());

// States of each element.
template <class Step>
inline constexpr int kStates = optimizer_row(Step::kKinds[0]).states();

// Whether a segment may lack the states.
template <class Step>
inline constexpr bool kStatesNeedMomentum = optimizer_row(Step::kKinds[0]).states_need_momentum;
template <class Step>
bool keeps_states(const Step& step) {
  if constexpr (kStatesNeedMomentum<Step>) return step.momentum != 0;
  return kStates<Step> > 0;
}

// A step of any of them.
template <class Step>
using ConstPointer = const Step*;
using AnyStep = EveryStep::Variant<ConstPointer>;

}  // namespace shoal::kernels
