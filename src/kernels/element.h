// One element at a time between fp32 and the stored dtypes, rounding to nearest even by IEEE 754. Included by the
// reference, and by every instruction set's file for the elements that do not fill a vector.
//
// [Note: nothing of an instruction set's file leaks]
// A file compiled with -mavx512f must not give the linker an inline function that plain code might then run: what
// update_avx512.cpp and its like include is in an unnamed namespace and uses no std:: template. The linker therefore
// sees only the one function that hands out the table (tools/kernel_check_x86.sh looks).
#pragma once

#include <cstdint>

#include "shoal/dtype.h"

namespace shoal::kernels {
namespace {

inline uint32_t bits_of(float value) { return __builtin_bit_cast(uint32_t, value); }
inline float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }

inline float from_bf16(uint16_t bits) { return float_of(static_cast<uint32_t>(bits) << 16); }

inline uint16_t to_bf16(float value) {
  const uint32_t bits = bits_of(value);
  if (value != value) return static_cast<uint16_t>((bits >> 16) | 0x40u);  // a NaN stays one, made quiet
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float from_f16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t fraction = half & 0x3ffu;
  if (exponent == 0x1f) {
    const uint32_t quiet = fraction != 0 ? 0x400000u : 0;
    return float_of(sign | 0x7f800000u | quiet | (fraction << 13));
  }
  if (exponent == 0) {  // zero or denormal: fraction * 2^-24, exact in fp32
    return float_of(sign | bits_of(static_cast<float>(fraction) * 0x1p-24f));
  }
  return float_of(sign | ((exponent + 112) << 23) | (fraction << 13));
}

inline uint16_t to_f16(float value) {
  const uint32_t sign = (bits_of(value) >> 16) & 0x8000u;
  const uint32_t magnitude = bits_of(value) & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {
    // Below 2^-14 the result is a multiple of 2^-24. Adding 0.5, whose last bit is 2^-24, makes the addition round.
    const float shifted = float_of(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (bits_of(shifted) - bits_of(0.5f)));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
}

// See [Note: the split master] in convert.h.
inline float plain_nan() { return float_of(0x7fc00000u); }
inline uint16_t high_half(float master) {
  return static_cast<uint16_t>(((master == master ? bits_of(master) : bits_of(plain_nan())) + 0x8000u) >> 16);
}
inline uint16_t low_half(float master) {
  return master == master ? static_cast<uint16_t>(bits_of(master)) : uint16_t{0};
}
inline float whole_of(uint16_t weight, uint16_t remainder) {
  if ((weight & 0x7fffu) == 0 && remainder >> 15 != 0) remainder = 0;
  const uint32_t high = static_cast<uint32_t>(weight) - (remainder >> 15);
  return float_of((high << 16) | remainder);
}

// An element of any dtype at an index of untyped memory.
template <DType dtype>
inline float load_element(const void* memory, int64_t i) {
  if constexpr (dtype == DType::f32) return static_cast<const float*>(memory)[i];
  if constexpr (dtype == DType::bf16) return from_bf16(static_cast<const uint16_t*>(memory)[i]);
  if constexpr (dtype == DType::f16) return from_f16(static_cast<const uint16_t*>(memory)[i]);
}
template <DType dtype>
inline void store_element(void* memory, int64_t i, float value) {
  if constexpr (dtype == DType::f32) static_cast<float*>(memory)[i] = value;
  if constexpr (dtype == DType::bf16) static_cast<uint16_t*>(memory)[i] = to_bf16(value);
  if constexpr (dtype == DType::f16) static_cast<uint16_t*>(memory)[i] = to_f16(value);
}

// The same with the dtype known at run time only, for the references.
inline float load_element(const void* memory, DType dtype, int64_t i) {
  if (dtype == DType::f32) return load_element<DType::f32>(memory, i);
  if (dtype == DType::bf16) return load_element<DType::bf16>(memory, i);
  return load_element<DType::f16>(memory, i);
}
inline void store_element(void* memory, DType dtype, int64_t i, float value) {
  if (dtype == DType::f32) return store_element<DType::f32>(memory, i, value);
  if (dtype == DType::bf16) return store_element<DType::bf16>(memory, i, value);
  return store_element<DType::f16>(memory, i, value);
}

}  // namespace
}  // namespace shoal::kernels
