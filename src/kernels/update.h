// The fused optimizer updates: gradient in, unscale and clip, states and weights out, in one pass over one segment.
// Plain memory only; who calls them in which order, and on how many threads, is the business of optim/.
//
// [Note: equal bits in every version]
// Each formula fixes every rounding: products and sums are single IEEE operations or explicit fused multiply-adds as
// written in `plain` (update_steps.h), square root and division are IEEE. The reference, NEON, AVX2 and AVX-512
// versions therefore agree bit for bit, for every length, offset and split of the work. Only which NaN a NaN is may
// differ: IEEE leaves open whose payload survives an operation.
//
// [Note: states of 16 bits]
// States, and weights without a master, may be kept in 16 bits. They are widened to fp32, which is exact, the formula
// runs as written, and what it gives is rounded to nearest even once, when it is stored. The weight is made from the
// states as the formula has them, before they are rounded.
#pragma once

#include <cstdint>

#include "kernels/update_steps.h"
#include "shoal/dtype.h"

namespace shoal::kernels {

// Where the fp32 value of a weight is kept.
enum class Master : uint8_t {
  weight,     // the weight is fp32 and is its own master
  remainder,  // bf16 weight; `master` holds 16 bits per element that complete it (see kernels/convert.h)
  full,       // bf16 or fp16 weight; `master` holds the fp32 value
  none,       // bf16 or fp16 weight, and there is no more of it: each update is rounded to it
};

// One run of elements with the same hyper-parameters. Pointers may have any element alignment.
struct Segment {
  int64_t numel = 0;
  void* weight = nullptr;
  DType weight_dtype = DType::f32;
  Master master_kind = Master::weight;
  void* master = nullptr;  // uint16_t[numel], float[numel] or null, by master_kind
  const void* grad = nullptr;
  DType grad_dtype = DType::f32;
  void* first = nullptr;   // first moment, momentum buffer or sum of squares, by optimizer; may be null (plain SGD)
  void* second = nullptr;  // of optimizers with two states
  DType state_dtype = DType::f32;  // of both
};

// One step of the optimizer that the step is of.
void update(const Segment& segment, const AnyStep& step);
template <class Step>
void update(const Segment& segment, const Step& step) {
  update(segment, AnyStep(&step));
}

}  // namespace shoal::kernels
