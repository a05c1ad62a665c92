// NEON as eight lanes, two registers side by side: eight 16-bit elements are then one whole register.
// The members mean what lanes_one.h says.
#pragma once

#include <arm_neon.h>

#include "kernels/element.h"

namespace shoal::kernels {
namespace {

struct Neon {
  static constexpr int64_t kWidth = 8;
  static constexpr bool kPrefetches = false;
  struct F {
    float32x4_t lo, hi;
  };

  static F set(float value) { return {vdupq_n_f32(value), vdupq_n_f32(value)}; }
  static F mul(F a, F b) { return {vmulq_f32(a.lo, b.lo), vmulq_f32(a.hi, b.hi)}; }
  static F add(F a, F b) { return {vaddq_f32(a.lo, b.lo), vaddq_f32(a.hi, b.hi)}; }
  static F sub(F a, F b) { return {vsubq_f32(a.lo, b.lo), vsubq_f32(a.hi, b.hi)}; }
  static F div(F a, F b) { return {vdivq_f32(a.lo, b.lo), vdivq_f32(a.hi, b.hi)}; }
  static F fma(F a, F b, F c) { return {vfmaq_f32(c.lo, a.lo, b.lo), vfmaq_f32(c.hi, a.hi, b.hi)}; }
  static F fnma(F a, F b, F c) { return {vfmsq_f32(c.lo, a.lo, b.lo), vfmsq_f32(c.hi, a.hi, b.hi)}; }
  static F sqrt(F a) { return {vsqrtq_f32(a.lo), vsqrtq_f32(a.hi)}; }
  static F signed_as(F magnitude, F a) { return {signed_as(magnitude.lo, a.lo), signed_as(magnitude.hi, a.hi)}; }

  template <DType dtype>
  static F load(const void* memory, int64_t i) {
    if constexpr (dtype == DType::f32) {
      const float* p = static_cast<const float*>(memory) + i;
      return {vld1q_f32(p), vld1q_f32(p + 4)};
    } else {
      const uint16x8_t bits = vld1q_u16(static_cast<const uint16_t*>(memory) + i);
      if constexpr (dtype == DType::bf16) {
        const uint16x8_t zero = vdupq_n_u16(0);
        return {vreinterpretq_f32_u16(vzip1q_u16(zero, bits)), vreinterpretq_f32_u16(vzip2q_u16(zero, bits))};
      } else {
        const float16x8_t halves = vreinterpretq_f16_u16(bits);
        return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
      }
    }
  }

  template <DType dtype>
  static void store(void* memory, int64_t i, F value) {
    if constexpr (dtype == DType::f32) {
      float* p = static_cast<float*>(memory) + i;
      vst1q_f32(p, value.lo);
      vst1q_f32(p + 4, value.hi);
    } else {
      uint16_t* p = static_cast<uint16_t*>(memory) + i;
      if constexpr (dtype == DType::bf16) {
        vst1q_u16(p, rounded_bf16(value));
      } else {
        vst1q_u16(p, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(value.lo), value.hi)));
      }
    }
  }

  static F load_split(const void* weight, const void* remainder, int64_t i) {
    const uint16x8_t given = vld1q_u16(static_cast<const uint16_t*>(weight) + i);
    const uint16x8_t rest = vld1q_u16(static_cast<const uint16_t*>(remainder) + i);
    // Nothing where the weight is a zero that somebody wrote: it has no remainder with its top bit set.
    const uint16x8_t is_zero = vceqq_u16(vshlq_n_u16(given, 1), vdupq_n_u16(0));
    const uint16x8_t low = vbicq_u16(rest, vandq_u16(is_zero, vcgeq_u16(rest, vdupq_n_u16(0x8000))));
    const uint16x8_t high = less_carry(given, low);
    return {vreinterpretq_f32_u16(vzip1q_u16(low, high)), vreinterpretq_f32_u16(vzip2q_u16(low, high))};
  }

  static void store_split(void* weight, void* remainder, int64_t i, F value) {
    const uint16x8_t lo = vreinterpretq_u16_f32(with_plain_nan(value.lo));
    const uint16x8_t hi = vreinterpretq_u16_f32(with_plain_nan(value.hi));
    const uint16x8_t low = vuzp1q_u16(lo, hi);
    // Adding 0x8000 to the whole carries into the high half exactly when the low half's top bit is set.
    const uint16x8_t high = vsraq_n_u16(vuzp2q_u16(lo, hi), low, 15);
    vst1q_u16(static_cast<uint16_t*>(weight) + i, high);
    vst1q_u16(static_cast<uint16_t*>(remainder) + i, low);
  }

 private:
  static float32x4_t with_plain_nan(float32x4_t value) {
    return vbslq_f32(vceqq_f32(value, value), value, vdupq_n_f32(plain_nan()));
  }

  // weight minus one where the remainder's top bit is set: the arithmetic shift gives -1 there, and 0 elsewhere.
  static uint16x8_t less_carry(uint16x8_t weight, uint16x8_t remainder) {
    return vreinterpretq_u16_s16(vsraq_n_s16(vreinterpretq_s16_u16(weight), vreinterpretq_s16_u16(remainder), 15));
  }

  static float32x4_t signed_as(float32x4_t magnitude, float32x4_t a) {
    const uint32x4_t is_moving = vcagtq_f32(a, vdupq_n_f32(0));  // |a| > 0, which NaN is not
    const float32x4_t signed_magnitude = vbslq_f32(vdupq_n_u32(0x80000000u), a, magnitude);
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(signed_magnitude), is_moving));
  }

  // Half an ulp less one, and one more where the result would be odd, carry into the high half, which is kept.
  static uint16x4_t rounded_high_half(float32x4_t value) {
    const uint32x4_t bits = vreinterpretq_u32_f32(value);
    const uint32x4_t minus_odd = vtstq_u32(bits, vdupq_n_u32(0x10000));
    return vsubhn_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), minus_odd);
  }
  static uint16x8_t rounded_bf16(F value) {
    const uint16x8_t rounded = vcombine_u16(rounded_high_half(value.lo), rounded_high_half(value.hi));
    const uint16x8_t is_number = vuzp1q_u16(vreinterpretq_u16_u32(vceqq_f32(value.lo, value.lo)),
                                            vreinterpretq_u16_u32(vceqq_f32(value.hi, value.hi)));
    return vbslq_u16(is_number, rounded, vdupq_n_u16(0x7fc0));
  }
};

// Eight fp64 lanes for the sum of squares.
struct NeonSquares {
  float64x2_t a = vdupq_n_f64(0), b = vdupq_n_f64(0), c = vdupq_n_f64(0), d = vdupq_n_f64(0);

  template <DType dtype>
  void add(const void* memory, int64_t i) {
    const Neon::F x = Neon::load<dtype>(memory, i);
    a = plus_square(a, vcvt_f64_f32(vget_low_f32(x.lo)));
    b = plus_square(b, vcvt_high_f64_f32(x.lo));
    c = plus_square(c, vcvt_f64_f32(vget_low_f32(x.hi)));
    d = plus_square(d, vcvt_high_f64_f32(x.hi));
  }
  // The lanes, added by halves.
  double sum() const {
    const float64x2_t last = vaddq_f64(vaddq_f64(a, c), vaddq_f64(b, d));
    return vgetq_lane_f64(last, 0) + vgetq_lane_f64(last, 1);
  }

 private:
  // The square is exact in fp64, so the fused form rounds as the contract's product and sum do.
  static float64x2_t plus_square(float64x2_t sum, float64x2_t x) { return vfmaq_f64(sum, x, x); }
};

}  // namespace
}  // namespace shoal::kernels
