// The fused optimizer updates: gradient in, unscale and clip, states and weights out, in one pass over one segment.
// Plain memory only; who calls them in which order, and on how many threads, is the business of optim/.
//
// [Note: equal bits in every version]
// Each formula fixes every rounding: products and sums are single IEEE operations or explicit fused multiply-adds as
// written in the reference (update_reference.cpp), square root and division are IEEE. The reference, NEON, AVX2 and
// AVX-512 versions therefore agree bit for bit, for every length, offset and split of the work. Only which NaN a NaN
// is may differ: IEEE leaves open whose payload survives an operation.
//
// [Note: the formulas]
// g is the gradient times grad_scale, p the fp32 weight; the roundings are in update_reference.cpp.
//   Adam      m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
//             p = (1 - lr decay) p - lr inv_bias1 m / (sqrt(v) inv_sqrt_bias2 + eps)       decoupled (AdamW)
//             without: g += decay p first, and p is not shrunk. The learning rate and the scale are folded into the
//             constants, which saves three operations an element; a rate below kLeastRate counts as zero.
//   SGD       g += decay p;  b = momentum b + (1 - dampening) g, or g on the first step;
//             p -= lr b, or lr (g + momentum b) with nesterov, or lr g without momentum    as torch.optim.SGD
//   Adagrad   g += decay p;  s += g^2;  p -= lr g / (sqrt(s) + eps)                        as torch.optim.Adagrad
//   Lion      c = beta1 m + (1 - beta1) g;  m = beta2 m + (1 - beta2) g;  p = (1 - lr decay) p - lr sign(c)
//             sign(0) is 0, as in the paper; DeepSpeed's CPU kernel moves such a weight by lr.
//
// [Note: states of 16 bits]
// States, and weights without a master, may be kept in 16 bits. They are widened to fp32, which is exact, the formula
// runs as written, and what it gives is rounded to nearest even once, when it is stored. The weight is made from the
// states as the formula has them, before they are rounded.
#pragma once

#include <cstdint>

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
  void* second = nullptr;  // second moment (Adam only)
  DType state_dtype = DType::f32;  // of both
};

// grad_scale multiplies every gradient first: 1 / (loss scale * clip factor).
struct AdamStep {
  float grad_scale = 1, lr = 0, beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f, weight_decay = 0;
  bool decoupled = true;     // AdamW; false: weight decay is added to the gradient
  float inv_bias1 = 1;       // 1 / (1 - beta1^t)
  float inv_sqrt_bias2 = 1;  // 1 / sqrt(1 - beta2^t)
};
inline constexpr float kLeastRate = 0x1p-100f;  // of lr * inv_bias1

struct SgdStep {
  float grad_scale = 1, lr = 0, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  bool first_step = false;  // the momentum buffer starts as the gradient itself, as in torch
};
struct AdagradStep {
  float grad_scale = 1, lr = 0, eps = 1e-10f, weight_decay = 0;
};
struct LionStep {
  float grad_scale = 1, lr = 0, beta1 = 0.9f, beta2 = 0.99f, weight_decay = 0;
};

void adam(const Segment& segment, const AdamStep& step);
void sgd(const Segment& segment, const SgdStep& step);
void adagrad(const Segment& segment, const AdagradStep& step);
void lion(const Segment& segment, const LionStep& step);

}  // namespace shoal::kernels
