// The contract of the updates, one element at a time. The other versions must give these bits.
#include <cmath>

#include "kernels/element.h"
#include "kernels/isa_parts.h"

namespace shoal::kernels {
namespace {

float load_master(const Segment& s, int64_t i) {
  switch (s.master_kind) {
    case Master::weight: return static_cast<const float*>(s.weight)[i];
    case Master::remainder:
      return whole_of(static_cast<const uint16_t*>(s.weight)[i], static_cast<const uint16_t*>(s.master)[i]);
    case Master::full: return static_cast<const float*>(s.master)[i];
    case Master::none: __builtin_trap();  // update_narrow.h takes it apart
  }
  return 0;
}

void store_master(const Segment& s, int64_t i, float p) {
  switch (s.master_kind) {
    case Master::weight: static_cast<float*>(s.weight)[i] = p; return;
    case Master::remainder:
      static_cast<uint16_t*>(s.weight)[i] = high_half(p);
      static_cast<uint16_t*>(s.master)[i] = low_half(p);
      return;
    case Master::full:
      static_cast<float*>(s.master)[i] = p;
      static_cast<uint16_t*>(s.weight)[i] = s.weight_dtype == DType::bf16 ? to_bf16(p) : to_f16(p);
      return;
    case Master::none: __builtin_trap();  // update_narrow.h takes it apart
  }
}

float* first_of(const Segment& s) { return static_cast<float*>(s.first); }

void plain_adam(const Segment& s, const AdamStep& step) {
  const float scale = step.decoupled ? step.grad_scale : 1.0f;  // with L2 decay the gradient is scaled before
  const float rest1 = (1.0f - step.beta1) * scale;
  const float root_rest2 = std::sqrt(1.0f - step.beta2) * scale;
  const float keep = step.decoupled ? 1.0f - step.lr * step.weight_decay : 1.0f;
  const float rate = step.lr * step.inv_bias1;
  const bool moves = rate >= kLeastRate;
  const float slope = moves ? -(step.inv_sqrt_bias2 / rate) : 0.0f;
  const float offset = moves ? -(step.eps / rate) : -INFINITY;
  float* first = first_of(s);
  auto* second = static_cast<float*>(s.second);
  for (int64_t i = 0; i < s.numel; ++i) {
    const float p = load_master(s, i);
    float g = load_element(s.grad, s.grad_dtype, i);
    if (!step.decoupled) g = std::fma(step.weight_decay, p, g * step.grad_scale);
    const float m = std::fma(step.beta1, first[i], rest1 * g);
    const float u = root_rest2 * g;
    const float v = std::fma(u, u, step.beta2 * second[i]);
    const float denominator = std::fma(std::sqrt(v), slope, offset);
    first[i] = m;
    second[i] = v;
    store_master(s, i, std::fma(keep, p, m / denominator));
  }
}

void plain_sgd(const Segment& s, const SgdStep& step) {
  const float undamped = 1.0f - step.dampening;
  float* first = first_of(s);
  for (int64_t i = 0; i < s.numel; ++i) {
    float p = load_master(s, i);
    float g = std::fma(step.weight_decay, p, load_element(s.grad, s.grad_dtype, i) * step.grad_scale);
    if (step.momentum != 0) {
      const float buffer = step.first_step ? g : std::fma(step.momentum, first[i], undamped * g);
      first[i] = buffer;
      g = step.nesterov ? std::fma(step.momentum, buffer, g) : buffer;
    }
    p = std::fma(-step.lr, g, p);
    store_master(s, i, p);
  }
}

void plain_adagrad(const Segment& s, const AdagradStep& step) {
  float* first = first_of(s);
  for (int64_t i = 0; i < s.numel; ++i) {
    float p = load_master(s, i);
    const float g = std::fma(step.weight_decay, p, load_element(s.grad, s.grad_dtype, i) * step.grad_scale);
    const float sum = std::fma(g, g, first[i]);
    p = std::fma(-step.lr, g / (std::sqrt(sum) + step.eps), p);
    first[i] = sum;
    store_master(s, i, p);
  }
}

void plain_lion(const Segment& s, const LionStep& step) {
  const float rest1 = 1.0f - step.beta1;
  const float rest2 = 1.0f - step.beta2;
  float* first = first_of(s);
  const float keep = 1.0f - step.lr * step.weight_decay;
  for (int64_t i = 0; i < s.numel; ++i) {
    float p = load_master(s, i);
    const float g = load_element(s.grad, s.grad_dtype, i) * step.grad_scale;
    const float c = std::fma(step.beta1, first[i], rest1 * g);
    const float move = c > 0 ? step.lr : c < 0 ? -step.lr : 0.0f;
    first[i] = std::fma(step.beta2, first[i], rest2 * g);
    p = p * keep - move;
    store_master(s, i, p);
  }
}

}  // namespace

UpdateKernels update_reference() { return {plain_adam, plain_sgd, plain_adagrad, plain_lion}; }

}  // namespace shoal::kernels
