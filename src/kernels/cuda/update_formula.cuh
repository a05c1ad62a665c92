// The optimizers' formulas on the device, rounding by rounding as in kernels/update_reference.cpp: every product, sum,
// quotient and root is one IEEE operation, or a fused multiply-add where the reference writes one.
#pragma once

#include "kernels/cuda/element.cuh"
#include "kernels/update.h"

namespace shoal::kernels::cuda {
namespace {

// A formula is made from a group's step and updates one element: it takes the fp32 weight, the gradient as stored and
// the states, changes the states and returns the weight. reads_first() and writes_first() say whether memory of the
// first state is touched; kSecond whether there is a second.
template <class Step>
struct Formula;

template <>
struct Formula<AdamStep> {
  static constexpr bool kSecond = true;
  __device__ explicit Formula(const AdamStep& step)
      : decoupled(step.decoupled),
        beta1(step.beta1),
        beta2(step.beta2),
        decay(step.weight_decay),
        grad_scale(step.grad_scale) {
    const float scale = decoupled ? step.grad_scale : 1.0f;
    const float rate = __fmul_rn(step.lr, step.inv_bias1);
    const bool moves = rate >= kLeastRate;
    rest1 = __fmul_rn(__fsub_rn(1.0f, beta1), scale);
    root_rest2 = __fmul_rn(__fsqrt_rn(__fsub_rn(1.0f, beta2)), scale);
    keep = decoupled ? __fsub_rn(1.0f, __fmul_rn(step.lr, decay)) : 1.0f;
    slope = moves ? -__fdiv_rn(step.inv_sqrt_bias2, rate) : 0.0f;
    offset = moves ? -__fdiv_rn(step.eps, rate) : -__int_as_float(0x7f800000);
  }
  __device__ bool reads_first() const { return true; }
  __device__ bool writes_first() const { return true; }
  __device__ float operator()(float p, float g, float& first, float& second) const {
    if (!decoupled) g = __fmaf_rn(decay, p, __fmul_rn(g, grad_scale));
    first = __fmaf_rn(beta1, first, __fmul_rn(rest1, g));
    const float u = __fmul_rn(root_rest2, g);
    second = __fmaf_rn(u, u, __fmul_rn(beta2, second));
    const float denominator = __fmaf_rn(__fsqrt_rn(second), slope, offset);
    return __fmaf_rn(keep, p, __fdiv_rn(first, denominator));
  }

  bool decoupled;
  float beta1, beta2, decay, grad_scale, rest1, root_rest2, keep, slope, offset;
};

template <>
struct Formula<SgdStep> {
  static constexpr bool kSecond = false;
  __device__ explicit Formula(const SgdStep& step)
      : has_momentum(step.momentum != 0),
        first_step(step.first_step),
        nesterov(step.nesterov),
        grad_scale(step.grad_scale),
        lr(step.lr),
        momentum(step.momentum),
        decay(step.weight_decay) {
    undamped = __fsub_rn(1.0f, step.dampening);
  }
  __device__ bool reads_first() const { return has_momentum && !first_step; }
  __device__ bool writes_first() const { return has_momentum; }
  __device__ float operator()(float p, float g, float& first, float&) const {
    g = __fmaf_rn(decay, p, __fmul_rn(g, grad_scale));
    if (has_momentum) {
      first = first_step ? g : __fmaf_rn(momentum, first, __fmul_rn(undamped, g));
      g = nesterov ? __fmaf_rn(momentum, first, g) : first;
    }
    return __fmaf_rn(-lr, g, p);
  }

  bool has_momentum, first_step, nesterov;
  float grad_scale, lr, momentum, decay, undamped;
};

template <>
struct Formula<AdagradStep> {
  static constexpr bool kSecond = false;
  __device__ explicit Formula(const AdagradStep& step)
      : grad_scale(step.grad_scale), lr(step.lr), eps(step.eps), decay(step.weight_decay) {}
  __device__ bool reads_first() const { return true; }
  __device__ bool writes_first() const { return true; }
  __device__ float operator()(float p, float g, float& first, float&) const {
    g = __fmaf_rn(decay, p, __fmul_rn(g, grad_scale));
    first = __fmaf_rn(g, g, first);
    return __fmaf_rn(-lr, __fdiv_rn(g, __fadd_rn(__fsqrt_rn(first), eps)), p);
  }

  float grad_scale, lr, eps, decay;
};

template <>
struct Formula<LionStep> {
  static constexpr bool kSecond = false;
  __device__ explicit Formula(const LionStep& step)
      : grad_scale(step.grad_scale), lr(step.lr), beta1(step.beta1), beta2(step.beta2) {
    rest1 = __fsub_rn(1.0f, beta1);
    rest2 = __fsub_rn(1.0f, beta2);
    keep = __fsub_rn(1.0f, __fmul_rn(lr, step.weight_decay));
  }
  __device__ bool reads_first() const { return true; }
  __device__ bool writes_first() const { return true; }
  __device__ float operator()(float p, float g, float& first, float&) const {
    g = __fmul_rn(g, grad_scale);
    const float c = __fmaf_rn(beta1, first, __fmul_rn(rest1, g));
    first = __fmaf_rn(beta2, first, __fmul_rn(rest2, g));
    const float move = c > 0 ? lr : c < 0 ? -lr : 0.0f;
    return __fsub_rn(__fmul_rn(p, keep), move);
  }

  float grad_scale, lr, beta1, beta2, rest1, rest2, keep;
};

// Where the fp32 value of a weight comes from and goes to.
struct OwnMaster {
  template <class A>
  __device__ static void load(const A& access, const void* weight, const void*, float (&p)[kPack]) {
    access.load(weight, p);
  }
  template <class A>
  __device__ static void store(const A& access, void* weight, void*, const float (&p)[kPack]) {
    access.store(weight, p);
  }
};

// [Note: a NaN that splits]
// Arithmetic makes the NaN 0x7fffffff here. Its high half rounds to 0x8000, which is minus zero: a weight that hides
// that its master is lost. The split master therefore stores the NaN whose high half is one too.
struct SplitMaster {
  template <class A>
  __device__ static void load(const A& access, const void* weight, const void* master, float (&p)[kPack]) {
    uint16_t high[kPack], low[kPack];
    access.load(weight, high);
    access.load(master, low);
#pragma unroll
    for (int k = 0; k < kPack; ++k) p[k] = whole_of(high[k], low[k]);
  }
  template <class A>
  __device__ static void store(const A& access, void* weight, void* master, const float (&p)[kPack]) {
    uint16_t high[kPack], low[kPack];
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      const float value = p[k] == p[k] ? p[k] : __int_as_float(0x7fc00000);
      high[k] = high_half(value);
      low[k] = low_half(value);
    }
    access.store(weight, high);
    access.store(master, low);
  }
};

template <DType weight_dtype>
struct FullMaster {
  template <class A>
  __device__ static void load(const A& access, const void*, const void* master, float (&p)[kPack]) {
    access.load(master, p);
  }
  template <class A>
  __device__ static void store(const A& access, void* weight, void* master, const float (&p)[kPack]) {
    access.store(master, p);
    store_floats<weight_dtype>(access, weight, p);
  }
};

// The same with everything known at run time only, for update_narrow_kernel.
template <class A>
__device__ inline void load_master(const A& access, DType weight_dtype, Master kind, const void* weight,
                                   const void* master, float (&p)[kPack]) {
  switch (kind) {
    case Master::weight: return OwnMaster::load(access, weight, master, p);
    case Master::remainder: return SplitMaster::load(access, weight, master, p);
    case Master::full: return access.load(master, p);
    case Master::none: return load_floats(access, weight_dtype, weight, p);
  }
}
template <class A>
__device__ inline void store_master(const A& access, DType weight_dtype, Master kind, void* weight, void* master,
                                    const float (&p)[kPack]) {
  if (kind == Master::remainder) return SplitMaster::store(access, weight, master, p);
  if (kind == Master::full) access.store(master, p);
  store_floats(access, weight_dtype, weight, p);
}

}  // namespace
}  // namespace shoal::kernels::cuda
