// The updates on vectors of any width: who reads and writes around the formulas of update_formulas.h. An instruction
// set's file includes this after its lanes_*.h and hands out update_kernels<V>(). The plain form is
// update_reference.cpp.
#pragma once

#include <type_traits>

#include "kernels/isa.h"
#include "kernels/lanes_one.h"
#include "kernels/update_formulas.h"

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

// AdamStep with its mode as a type, so that the loop has no branch: AdamW is what runs at the speed of memory.
template <bool kDecoupled, DType kState = DType::f32>
struct AdamMode : AdamStep {};

template <class V, bool kDecoupled, DType kState>
struct Formula<V, AdamMode<kDecoupled, kState>> : Formula<V, AdamStep> {
  SHOAL_IN_KERNEL explicit Formula(const AdamStep& step) : Formula<V, AdamStep>(in_mode(step)) {}
  SHOAL_IN_KERNEL static AdamStep in_mode(AdamStep step) {
    step.decoupled = kDecoupled;
    return step;
  }
};

// The dtype of the states that a formula works on.
template <class Step>
struct StateOf {
  static constexpr DType dtype = DType::f32;
};
template <bool kDecoupled, DType kState>
struct StateOf<AdamMode<kDecoupled, kState>> {
  static constexpr DType dtype = kState;
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
  const Formula<V, Step> formula(step);
  constexpr DType kState = StateOf<Step>::dtype;
  int64_t i = begin;
  for (; i + V::kWidth <= end; i += V::kWidth) {
    if constexpr (V::kPrefetches) prefetch<grad_dtype, Step>(s, i);
    const typename V::F g = V::template load<grad_dtype>(s.grad, i);
    const typename V::F p = Storage::template load<V>(s, i);
    typename V::F first = V::set(0), second = V::set(0);
    if (formula.reads_first()) first = V::template load<kState>(s.first, i);
    if constexpr (kStates<Step> == 2) second = V::template load<kState>(s.second, i);
    const typename V::F updated = formula(p, g, first, second);
    if (formula.writes_first()) V::template store<kState>(s.first, i, first);
    if constexpr (kStates<Step> == 2) V::template store<kState>(s.second, i, second);
    Storage::template store<V>(s, i, updated);
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
void update_by_master(const Segment& s, const Step& step) {
  switch (s.master_kind) {
    case Master::weight: return update_by_grad<V, OwnMaster>(s, step);
    case Master::remainder: return update_by_grad<V, SplitMaster>(s, step);
    case Master::full:
      if (s.weight_dtype == DType::bf16) return update_by_grad<V, FullMaster<DType::bf16>>(s, step);
      return update_by_grad<V, FullMaster<DType::f16>>(s, step);
    case Master::none: __builtin_trap();  // update_narrow.h takes it apart
  }
}

// What the table of kernels holds: AdamStep becomes one of its modes.
template <class V, class Step>
void update_any(const Segment& s, const Step& step) {
  if constexpr (!std::is_same_v<Step, AdamStep>) return update_by_master<V>(s, step);
  if constexpr (std::is_same_v<Step, AdamStep>) {
    if (step.decoupled) return update_by_master<V>(s, AdamMode<true>{step});
    return update_by_master<V>(s, AdamMode<false>{step});
  }
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

template <class V, class... Step>
UpdateKernels update_kernels_of(StepList<Step...>) {
  return {{{update_any<V, Step>}...}, update_narrow_adamw<V>};
}
template <class V>
UpdateKernels update_kernels() {
  return update_kernels_of<V>(EveryStep{});
}

}  // namespace
}  // namespace shoal::kernels
