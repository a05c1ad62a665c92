// AVX-512 (F, BW, DQ, VL) as sixteen lanes. The members mean what lanes_one.h says.
// Not used: the bf16 instructions, which flush denormals and would differ from the contract.
#pragma once

#include <immintrin.h>

#include "kernels/element.h"
#include "kernels/lanes_avx2.h"

namespace shoal::kernels {
namespace {

struct Avx512 {
  static constexpr int64_t kWidth = 16;
  static constexpr bool kPrefetches = true;
  using F = __m512;

  static F set(float value) { return _mm512_set1_ps(value); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
  static F sqrt(F a) { return _mm512_sqrt_ps(a); }
  static F signed_as(F magnitude, F a) {
    const __mmask16 is_moving = _mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_NEQ_OQ);
    const F sign = _mm512_and_ps(a, _mm512_set1_ps(-0.0f));
    return _mm512_maskz_xor_ps(is_moving, magnitude, sign);
  }

  template <DType dtype>
  static F load(const void* memory, int64_t i) {
    if constexpr (dtype == DType::f32) return _mm512_loadu_ps(static_cast<const float*>(memory) + i);
    if constexpr (dtype == DType::bf16) {
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_16_bits(memory, i)), 16));
    }
    if constexpr (dtype == DType::f16) return _mm512_cvtph_ps(load_16_bits(memory, i));
  }

  template <DType dtype>
  static void store(void* memory, int64_t i, F value) {
    if constexpr (dtype == DType::f32) _mm512_storeu_ps(static_cast<float*>(memory) + i, value);
    if constexpr (dtype == DType::bf16) {
      store_16_bits(memory, i, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded_bf16(value), 16)));
    }
    if constexpr (dtype == DType::f16) {
      store_16_bits(memory, i, _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
  }

  static F load_split(const void* weight, const void* remainder, int64_t i) {
    const __m256i given = load_16_bits(weight, i), rest = load_16_bits(remainder, i);
    // Nothing where the weight is a zero that somebody wrote: it has no remainder with its top bit set.
    const __m256i is_zero = _mm256_cmpeq_epi16(_mm256_add_epi16(given, given), _mm256_setzero_si256());
    const __m256i low = _mm256_andnot_si256(_mm256_and_si256(is_zero, _mm256_srai_epi16(rest, 15)), rest);
    // Minus one where the remainder's top bit is set.
    const __m256i high = _mm256_add_epi16(given, _mm256_srai_epi16(low, 15));
    return _mm512_castsi512_ps(
        _mm512_or_si512(_mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16), _mm512_cvtepu16_epi32(low)));
  }

  static void store_split(void* weight, void* remainder, int64_t i, F value) {
    const __m512i bits = _mm512_castps_si512(
        _mm512_mask_mov_ps(value, _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q), _mm512_set1_ps(plain_nan())));
    const __m512i high = _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x8000)), 16);
    store_16_bits(weight, i, _mm512_cvtepi32_epi16(high));
    store_16_bits(remainder, i, _mm512_cvtepi32_epi16(bits));
  }

 private:
  static __m256i load_16_bits(const void* memory, int64_t i) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(static_cast<const uint16_t*>(memory) + i));
  }
  static void store_16_bits(void* memory, int64_t i, __m256i bits) {
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(static_cast<uint16_t*>(memory) + i), bits);
  }
  // fp32 bits whose high half is the bf16 result.
  static __m512i rounded_bf16(F value) {
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x400000));
  }
};

// Eight fp64 lanes for the sum of squares. The square is exact in fp64, so the fused form rounds as the contract does.
struct Avx512Squares {
  __m512d a = _mm512_setzero_pd();

  template <DType dtype>
  void add(const void* memory, int64_t i) {
    const __m512d x = _mm512_cvtps_pd(Avx2::load<dtype>(memory, i));
    a = _mm512_fmadd_pd(x, x, a);
  }
  // The lanes, added by halves.
  double sum() const {
    const __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
  }
};

}  // namespace
}  // namespace shoal::kernels
