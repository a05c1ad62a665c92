// AVX2, FMA and F16C as eight lanes. The members mean what lanes_one.h says.
#pragma once

#include <immintrin.h>

#include "kernels/element.h"

namespace shoal::kernels {
namespace {

struct Avx2 {
  static constexpr int64_t kWidth = 8;
  static constexpr bool kPrefetches = true;
  using F = __m256;

  static F set(float value) { return _mm256_set1_ps(value); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
  static F sqrt(F a) { return _mm256_sqrt_ps(a); }
  static F signed_as(F magnitude, F a) {
    const F is_moving = _mm256_cmp_ps(a, _mm256_setzero_ps(), _CMP_NEQ_OQ);
    const F sign = _mm256_and_ps(a, _mm256_set1_ps(-0.0f));
    return _mm256_and_ps(_mm256_xor_ps(magnitude, sign), is_moving);
  }

  template <DType dtype>
  static F load(const void* memory, int64_t i) {
    if constexpr (dtype == DType::f32) return _mm256_loadu_ps(static_cast<const float*>(memory) + i);
    if constexpr (dtype == DType::bf16) {
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16_bits(memory, i)), 16));
    }
    if constexpr (dtype == DType::f16) return _mm256_cvtph_ps(load_16_bits(memory, i));
  }

  template <DType dtype>
  static void store(void* memory, int64_t i, F value) {
    if constexpr (dtype == DType::f32) _mm256_storeu_ps(static_cast<float*>(memory) + i, value);
    if constexpr (dtype == DType::bf16) store_16_bits(memory, i, packed(_mm256_srli_epi32(rounded_bf16(value), 16)));
    if constexpr (dtype == DType::f16) store_16_bits(memory, i, _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }

  static F load_split(const void* weight, const void* remainder, int64_t i) {
    const __m128i given = load_16_bits(weight, i), rest = load_16_bits(remainder, i);
    // Nothing where the weight is a zero that somebody wrote: it has no remainder with its top bit set.
    const __m128i is_zero = _mm_cmpeq_epi16(_mm_add_epi16(given, given), _mm_setzero_si128());
    const __m128i low = _mm_andnot_si128(_mm_and_si128(is_zero, _mm_srai_epi16(rest, 15)), rest);
    // Minus one where the remainder's top bit is set.
    const __m128i high = _mm_add_epi16(given, _mm_srai_epi16(low, 15));
    return _mm256_castsi256_ps(_mm256_set_m128i(_mm_unpackhi_epi16(low, high), _mm_unpacklo_epi16(low, high)));
  }

  static void store_split(void* weight, void* remainder, int64_t i, F value) {
    const __m256i bits = _mm256_castps_si256(
        _mm256_blendv_ps(value, _mm256_set1_ps(plain_nan()), _mm256_cmp_ps(value, value, _CMP_UNORD_Q)));
    const __m256i high = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x8000)), 16);
    store_16_bits(weight, i, packed(high));
    store_16_bits(remainder, i, packed(_mm256_and_si256(bits, _mm256_set1_epi32(0xffff))));
  }

 private:
  static __m128i load_16_bits(const void* memory, int64_t i) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(static_cast<const uint16_t*>(memory) + i));
  }
  static void store_16_bits(void* memory, int64_t i, __m128i bits) {
    _mm_storeu_si128(reinterpret_cast<__m128i_u*>(static_cast<uint16_t*>(memory) + i), bits);
  }
  // Eight 32-bit values below 65536 as eight 16-bit ones.
  static __m128i packed(__m256i values) {
    return _mm_packus_epi32(_mm256_castsi256_si128(values), _mm256_extracti128_si256(values, 1));
  }
  // fp32 bits whose high half is the bf16 result.
  static __m256i rounded_bf16(F value) {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, quiet, is_nan);
  }
};

// Eight fp64 lanes for the sum of squares. The square is exact in fp64, so the fused form rounds as the contract does.
struct Avx2Squares {
  __m256d a = _mm256_setzero_pd(), b = _mm256_setzero_pd();

  template <DType dtype>
  void add(const void* memory, int64_t i) {
    const __m256 x = Avx2::load<dtype>(memory, i);
    const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    a = _mm256_fmadd_pd(low, low, a);
    b = _mm256_fmadd_pd(high, high, b);
  }
  // The lanes, added by halves.
  double sum() const {
    const __m256d four = _mm256_add_pd(a, b);
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
  }
};

}  // namespace
}  // namespace shoal::kernels
