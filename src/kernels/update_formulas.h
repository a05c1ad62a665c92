// The optimizers' formulas on the lanes of any machine, written once: V is one of lanes_*.h, or a GPU's thread
// (cuda/lane.cuh). Rounding by rounding they are `plain` of update_steps.h: neither the host's compiler nor nvcc fuses
// what is not written as fma. Who loads and stores is update_body.h on the host and cuda/update.cu on a GPU.
// See [Note: nothing of an instruction set's file leaks] in element.h.
#pragma once

#include <limits>

#include "kernels/update_steps.h"

#ifdef __CUDACC__
#define SHOAL_IN_KERNEL __device__ __forceinline__
#else
#define SHOAL_IN_KERNEL [[gnu::always_inline]] inline
#endif

namespace shoal::kernels {
namespace {

// A formula is made from a group's step and updates one vector of elements: it takes the fp32 weights, the gradients as
// they were stored and the states, changes the states and returns the weights. reads_first() and writes_first() say
// whether memory of the first state is touched.
template <class V, class Step>
struct Formula;

struct FirstIsTouched {
  SHOAL_IN_KERNEL bool reads_first() const { return true; }
  SHOAL_IN_KERNEL bool writes_first() const { return true; }
};

template <class V>
struct Formula<V, AdamStep> : FirstIsTouched {
  using F = typename V::F;
  SHOAL_IN_KERNEL explicit Formula(const AdamStep& step)
      : decoupled(step.decoupled),
        beta1(V::set(step.beta1)),
        beta2(V::set(step.beta2)),
        decay(V::set(step.weight_decay)),
        grad_scale(V::set(step.grad_scale)) {
    const float scale = decoupled ? step.grad_scale : 1.0f;
    const float rate = step.lr * step.inv_bias1;
    const bool moves = rate >= kLeastRate;
    rest1 = V::set((1.0f - step.beta1) * scale);
    root_rest2 = V::mul(V::sqrt(V::set(1.0f - step.beta2)), V::set(scale));
    keep = V::set(decoupled ? 1.0f - step.lr * step.weight_decay : 1.0f);
    slope = V::set(moves ? -(step.inv_sqrt_bias2 / rate) : 0.0f);
    offset = V::set(moves ? -(step.eps / rate) : -kInfinity);
  }

  SHOAL_IN_KERNEL F operator()(F p, F g, F& first, F& second) const {
    if (!decoupled) g = V::fma(decay, p, V::mul(g, grad_scale));
    first = V::fma(beta1, first, V::mul(rest1, g));
    const F u = V::mul(root_rest2, g);
    second = V::fma(u, u, V::mul(beta2, second));
    const F denominator = V::fma(V::sqrt(second), slope, offset);
    return V::fma(keep, p, V::div(first, denominator));
  }

  static constexpr float kInfinity = std::numeric_limits<float>::infinity();
  bool decoupled;
  F beta1, beta2, decay, grad_scale, rest1, root_rest2, keep, slope, offset;
};

template <class V>
struct Formula<V, SgdStep> {
  using F = typename V::F;
  SHOAL_IN_KERNEL explicit Formula(const SgdStep& step)
      : has_momentum(step.momentum != 0),
        first_step(step.first_step),
        nesterov(step.nesterov),
        grad_scale(V::set(step.grad_scale)),
        lr(V::set(step.lr)),
        momentum(V::set(step.momentum)),
        undamped(V::set(1.0f - step.dampening)),
        decay(V::set(step.weight_decay)) {}
  SHOAL_IN_KERNEL bool reads_first() const { return has_momentum && !first_step; }
  SHOAL_IN_KERNEL bool writes_first() const { return has_momentum; }

  SHOAL_IN_KERNEL F operator()(F p, F g, F& first, F&) const {
    g = V::fma(decay, p, V::mul(g, grad_scale));
    if (has_momentum) {
      first = first_step ? g : V::fma(momentum, first, V::mul(undamped, g));
      g = nesterov ? V::fma(momentum, first, g) : first;
    }
    return V::fnma(lr, g, p);
  }

  bool has_momentum, first_step, nesterov;
  F grad_scale, lr, momentum, undamped, decay;
};

template <class V>
struct Formula<V, AdagradStep> : FirstIsTouched {
  using F = typename V::F;
  SHOAL_IN_KERNEL explicit Formula(const AdagradStep& step)
      : grad_scale(V::set(step.grad_scale)),
        lr(V::set(step.lr)),
        eps(V::set(step.eps)),
        decay(V::set(step.weight_decay)) {}

  SHOAL_IN_KERNEL F operator()(F p, F g, F& first, F&) const {
    g = V::fma(decay, p, V::mul(g, grad_scale));
    first = V::fma(g, g, first);
    return V::fnma(lr, V::div(g, V::add(V::sqrt(first), eps)), p);
  }

  F grad_scale, lr, eps, decay;
};

template <class V>
struct Formula<V, LionStep> : FirstIsTouched {
  using F = typename V::F;
  SHOAL_IN_KERNEL explicit Formula(const LionStep& step)
      : grad_scale(V::set(step.grad_scale)),
        lr(V::set(step.lr)),
        beta1(V::set(step.beta1)),
        beta2(V::set(step.beta2)),
        rest1(V::set(1.0f - step.beta1)),
        rest2(V::set(1.0f - step.beta2)),
        keep(V::set(1.0f - step.lr * step.weight_decay)) {}

  SHOAL_IN_KERNEL F operator()(F p, F g, F& first, F&) const {
    g = V::mul(g, grad_scale);
    const F c = V::fma(beta1, first, V::mul(rest1, g));
    first = V::fma(beta2, first, V::mul(rest2, g));
    return V::sub(V::mul(p, keep), V::signed_as(lr, c));
  }

  F grad_scale, lr, beta1, beta2, rest1, rest2, keep;
};

template <class V>
struct Formula<V, LambStep> : FirstIsTouched {
  using F = typename V::F;
  SHOAL_IN_KERNEL explicit Formula(const LambStep& step)
      : applies(step.applies),
        eps_inside_sqrt(step.eps_inside_sqrt),
        grad_scale(V::set(step.grad_scale)),
        beta1(V::set(step.beta1)),
        beta2(V::set(step.beta2)),
        rest1(V::set(1.0f - step.beta1)),
        rest2(V::set(1.0f - step.beta2)),
        eps(V::set(step.eps)),
        decay(V::set(step.weight_decay)),
        rate(V::set(step.lr * step.correction * step.ratio)) {}

  SHOAL_IN_KERNEL F operator()(F p, F g, F& first, F& second) const {
    if (!applies) {
      g = V::mul(g, grad_scale);
      first = V::fma(beta1, first, V::mul(rest1, g));
      second = V::fma(V::mul(rest2, g), g, V::mul(beta2, second));
    }
    const F root = eps_inside_sqrt ? V::sqrt(V::add(second, eps)) : V::add(V::sqrt(second), eps);
    const F update = V::fma(decay, p, V::div(first, root));
    return applies ? V::fnma(rate, update, p) : update;
  }

  bool applies, eps_inside_sqrt;
  F grad_scale, beta1, beta2, rest1, rest2, eps, decay, rate;
};

}  // namespace
}  // namespace shoal::kernels
