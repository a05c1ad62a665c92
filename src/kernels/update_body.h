// The updates on vectors of any width, written once. An instruction set's file includes this after its lanes_*.h and
// hands out update_kernels<V>(). See [Note: the formulas] in update.h; the plain form is update_reference.cpp.
#pragma once

#include "kernels/isa.h"
#include "kernels/lanes_one.h"

namespace shoal::kernels {
namespace {

// Where the fp32 value of a weight comes from and goes to.
struct OwnMaster {
  template <class V>
  static typename V::F load(const Segment& s, int64_t i) {
    return V::template load<DType::f32>(s.weight, i);
  }
  template <class V>
  static void store(const Segment& s, int64_t i, typename V::F p) {
    V::template store<DType::f32>(s.weight, i, p);
  }
};
struct SplitMaster {
  template <class V>
  static typename V::F load(const Segment& s, int64_t i) {
    return V::load_split(s.weight, s.master, i);
  }
  template <class V>
  static void store(const Segment& s, int64_t i, typename V::F p) {
    V::store_split(s.weight, s.master, i, p);
  }
};
template <DType weight_dtype>
struct FullMaster {
  template <class V>
  static typename V::F load(const Segment& s, int64_t i) {
    return V::template load<DType::f32>(s.master, i);
  }
  template <class V>
  static void store(const Segment& s, int64_t i, typename V::F p) {
    V::template store<DType::f32>(s.master, i, p);
    V::template store<weight_dtype>(s.weight, i, p);
  }
};

// No master: the weight is rounded to nearest even.
template <DType weight_dtype>
struct NoMaster {
  template <class V>
  static typename V::F load(const Segment& s, int64_t i) {
    return V::template load<weight_dtype>(s.weight, i);
  }
  template <class V>
  static void store(const Segment& s, int64_t i, typename V::F p) {
    V::template store<weight_dtype>(s.weight, i, p);
  }
};

// A formula takes the fp32 weight and the gradient as it was stored, both at index i, updates the states
// there and returns the weight.
template <class V, class Step>
struct Formula;

// AdamStep with its mode as a type, so that the loop has no branch: AdamW is what runs at the speed of memory.
template <bool kDecoupled, DType kState = DType::f32>
struct AdamMode : AdamStep {};

// The dtype of the states that a formula works on.
template <class Step>
struct StateOf {
  static constexpr DType dtype = DType::f32;
};
template <bool kDecoupled, DType kState>
struct StateOf<AdamMode<kDecoupled, kState>> {
  static constexpr DType dtype = kState;
};

template <class V, bool kDecoupled, DType kState>
struct Formula<V, AdamMode<kDecoupled, kState>> {
  using F = typename V::F;
  Formula(const Segment& s, const AdamStep& step)
      : first(s.first),
        second(s.second),
        beta1(V::set(step.beta1)),
        beta2(V::set(step.beta2)),
        decay(V::set(step.weight_decay)),
        grad_scale(V::set(step.grad_scale)) {
    const float scale = kDecoupled ? step.grad_scale : 1.0f;
    const float rate = step.lr * step.inv_bias1;
    const bool moves = rate >= kLeastRate;
    rest1 = V::set((1.0f - step.beta1) * scale);
    root_rest2 = V::set(__builtin_sqrtf(1.0f - step.beta2) * scale);
    keep = V::set(kDecoupled ? 1.0f - step.lr * step.weight_decay : 1.0f);
    slope = V::set(moves ? -(step.inv_sqrt_bias2 / rate) : 0.0f);
    offset = V::set(moves ? -(step.eps / rate) : -__builtin_inff());
  }

  [[gnu::always_inline]] F operator()(int64_t i, F p, F g) const {
    if constexpr (!kDecoupled) g = V::fma(decay, p, V::mul(g, grad_scale));
    const F m = V::fma(beta1, V::template load<kState>(first, i), V::mul(rest1, g));
    const F u = V::mul(root_rest2, g);
    const F v = V::fma(u, u, V::mul(beta2, V::template load<kState>(second, i)));
    const F denominator = V::fma(V::sqrt(v), slope, offset);
    V::template store<kState>(first, i, m);
    V::template store<kState>(second, i, v);
    return V::fma(keep, p, V::div(m, denominator));
  }

  void *first, *second;
  F beta1, beta2, decay, grad_scale, rest1, root_rest2, keep, slope, offset;
};

template <class V>
struct Formula<V, SgdStep> {
  using F = typename V::F;
  Formula(const Segment& s, const SgdStep& step)
      : first(static_cast<float*>(s.first)),
        has_momentum(step.momentum != 0),
        first_step(step.first_step),
        nesterov(step.nesterov),
        grad_scale(V::set(step.grad_scale)),
        lr(V::set(step.lr)),
        momentum(V::set(step.momentum)),
        undamped(V::set(1.0f - step.dampening)),
        decay(V::set(step.weight_decay)) {}

  [[gnu::always_inline]] F operator()(int64_t i, F p, F g) const {
    g = V::fma(decay, p, V::mul(g, grad_scale));
    if (has_momentum) {
      F buffer = g;
      if (!first_step) buffer = V::fma(momentum, V::template load<DType::f32>(first, i), V::mul(undamped, g));
      V::template store<DType::f32>(first, i, buffer);
      g = nesterov ? V::fma(momentum, buffer, g) : buffer;
    }
    return V::fnma(lr, g, p);
  }

  float* first;
  bool has_momentum, first_step, nesterov;
  F grad_scale, lr, momentum, undamped, decay;
};

template <class V>
struct Formula<V, AdagradStep> {
  using F = typename V::F;
  Formula(const Segment& s, const AdagradStep& step)
      : first(static_cast<float*>(s.first)),
        grad_scale(V::set(step.grad_scale)),
        lr(V::set(step.lr)),
        eps(V::set(step.eps)),
        decay(V::set(step.weight_decay)) {}

  [[gnu::always_inline]] F operator()(int64_t i, F p, F g) const {
    g = V::fma(decay, p, V::mul(g, grad_scale));
    const F sum = V::fma(g, g, V::template load<DType::f32>(first, i));
    V::template store<DType::f32>(first, i, sum);
    return V::fnma(lr, V::div(g, V::add(V::sqrt(sum), eps)), p);
  }

  float* first;
  F grad_scale, lr, eps, decay;
};

template <class V>
struct Formula<V, LionStep> {
  using F = typename V::F;
  Formula(const Segment& s, const LionStep& step)
      : first(static_cast<float*>(s.first)),
        grad_scale(V::set(step.grad_scale)),
        lr(V::set(step.lr)),
        beta1(V::set(step.beta1)),
        beta2(V::set(step.beta2)),
        rest1(V::set(1.0f - step.beta1)),
        rest2(V::set(1.0f - step.beta2)),
        keep(V::set(1.0f - step.lr * step.weight_decay)) {}

  [[gnu::always_inline]] F operator()(int64_t i, F p, F g) const {
    g = V::mul(g, grad_scale);
    const F m = V::template load<DType::f32>(first, i);
    const F c = V::fma(beta1, m, V::mul(rest1, g));
    V::template store<DType::f32>(first, i, V::fma(beta2, m, V::mul(rest2, g)));
    return V::sub(V::mul(p, keep), V::signed_as(lr, c));
  }

  float* first;
  F grad_scale, lr, beta1, beta2, rest1, rest2, keep;
};

// Asks for what the loop reads a few rounds later: with five streams at once the hardware does not look far enough
// ahead on x86-64 (AVX-512, bf16 form, 32 Mi elements: 87 % of the roof without, 98 % with). Addresses past the end or
// near null are harmless to ask for; they are numbers here, since pointers may not go there.
template <DType grad_dtype, class Step>
[[gnu::always_inline]] inline void prefetch(const Segment& s, int64_t i) {
  constexpr int64_t kAhead = 256;  // elements
  const auto line = [i](const void* memory, size_t nbytes) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(memory) + static_cast<uintptr_t>(i + kAhead) * nbytes;
    __builtin_prefetch(reinterpret_cast<const void*>(address));
  };
  line(s.grad, nbytes_of(grad_dtype));
  line(s.weight, nbytes_of(s.weight_dtype));
  if (s.master != nullptr) line(s.master, s.master_kind == Master::full ? 4 : 2);
  line(s.first, nbytes_of(StateOf<Step>::dtype));
  line(s.second, nbytes_of(StateOf<Step>::dtype));
}

// Whole vectors of [begin, end); returns where it stopped.
template <class V, class Storage, DType grad_dtype, class Step>
[[gnu::noinline]] int64_t update_range(const Segment& segment, const Step& step, int64_t begin, int64_t end) {
  const Segment s = segment;  // a copy of our own: no store below can change it
  const Formula<V, Step> formula(s, step);
  int64_t i = begin;
  for (; i + V::kWidth <= end; i += V::kWidth) {
    if constexpr (V::kPrefetches) prefetch<grad_dtype, Step>(s, i);
    const typename V::F g = V::template load<grad_dtype>(s.grad, i);
    Storage::template store<V>(s, i, formula(i, Storage::template load<V>(s, i), g));
  }
  return i;
}

template <class V, class Storage, DType grad_dtype, class Step>
void update_all(const Segment& s, const Step& step) {
  const int64_t done = update_range<V, Storage, grad_dtype>(s, step, 0, s.numel);
  if (done < s.numel) update_range<OneLane, Storage, grad_dtype>(s, step, done, s.numel);
}

template <class V, class Storage, class Step>
void update_by_grad(const Segment& s, const Step& step) {
  switch (s.grad_dtype) {
    case DType::f32: return update_all<V, Storage, DType::f32>(s, step);
    case DType::bf16: return update_all<V, Storage, DType::bf16>(s, step);
    case DType::f16: return update_all<V, Storage, DType::f16>(s, step);
  }
}

template <class V, class Step>
void update(const Segment& s, const Step& step) {
  switch (s.master_kind) {
    case Master::weight: return update_by_grad<V, OwnMaster>(s, step);
    case Master::remainder: return update_by_grad<V, SplitMaster>(s, step);
    case Master::full:
      if (s.weight_dtype == DType::bf16) return update_by_grad<V, FullMaster<DType::bf16>>(s, step);
      return update_by_grad<V, FullMaster<DType::f16>>(s, step);
    case Master::none: __builtin_trap();  // update_narrow.h takes it apart
  }
}

template <class V>
void update_adam(const Segment& s, const AdamStep& step) {
  if (step.decoupled) return update<V>(s, AdamMode<true>{step});
  return update<V>(s, AdamMode<false>{step});
}

// The kinds that a config can ask for. Others go through update_narrow.h, which has the same bits.
template <class V>
bool update_narrow_adamw(const Segment& s, const AdamStep& step) {
  const AdamMode<true, DType::bf16> narrow{step};
  if (!step.decoupled || s.state_dtype == DType::f16) return false;
  const bool narrow_states = s.state_dtype == DType::bf16;
  if (s.master_kind == Master::remainder && narrow_states && s.grad_dtype != DType::f16) {
    if (s.grad_dtype == DType::f32) return update_all<V, SplitMaster, DType::f32>(s, narrow), true;
    return update_all<V, SplitMaster, DType::bf16>(s, narrow), true;
  }
  if (s.master_kind != Master::none || s.grad_dtype != s.weight_dtype) return false;
  if (s.weight_dtype == DType::bf16) {
    if (narrow_states) return update_all<V, NoMaster<DType::bf16>, DType::bf16>(s, narrow), true;
    return update_all<V, NoMaster<DType::bf16>, DType::bf16>(s, AdamMode<true>{step}), true;
  }
  if (narrow_states) return false;
  return update_all<V, NoMaster<DType::f16>, DType::f16>(s, AdamMode<true>{step}), true;
}

template <class V>
UpdateKernels update_kernels() {
  return {update_adam<V>, update<V, SgdStep>, update<V, AdagradStep>, update<V, LionStep>, update_narrow_adamw<V>};
}

}  // namespace
}  // namespace shoal::kernels
