// Blocks on vectors of any width, written once; the plain loops are such that a compiler makes vectors of them, with
// the same results: the largest magnitude is found among integers, and nothing is summed. An instruction set's file
// includes this after its lanes_*.h and hands out block_kernels<V>(). The plain form is blocks_reference.cpp.
#pragma once

#include "kernels/isa.h"
#include "kernels/lanes_one.h"

namespace shoal::kernels {
namespace {

constexpr uint32_t kInfinityBits = 0x7f800000u;
constexpr float kMostFinite = 0x1.fffffep127f;
constexpr uint32_t kQuietNan = 0x7fc00000u;

template <int bits>
constexpr float most_of_bits() {
  return bits == 8 ? 127.0f : 7.0f;
}

// The block's elements in fp32; zeros where there are none any more.
template <class V, DType dtype>
[[gnu::always_inline]] inline void load_block(const void* values, int64_t at, int64_t numel, float* x) {
  int64_t i = 0;
  const int64_t count = numel - at < kBlockNumel ? numel - at : kBlockNumel;
  for (; i + V::kWidth <= count; i += V::kWidth) {
    V::template store<DType::f32>(x, i, V::template load<dtype>(values, at + i));
  }
  for (; i < count; ++i) x[i] = load_element<dtype>(values, at + i);
  for (; i < kBlockNumel; ++i) x[i] = 0;
}

template <class V, DType dtype>
[[gnu::always_inline]] inline void store_block(const float* x, void* values, int64_t at, int64_t numel) {
  int64_t i = 0;
  const int64_t count = numel - at < kBlockNumel ? numel - at : kBlockNumel;
  for (; i + V::kWidth <= count; i += V::kWidth) {
    V::template store<dtype>(values, at + i, V::template load<DType::f32>(x, i));
  }
  for (; i < count; ++i) store_element<dtype>(values, at + i, x[i]);
}

// The numbers of a block and its scale; false: an element is not finite.
template <int bits>
[[gnu::always_inline]] inline bool pack_block(const float* x, unsigned char* block) {
  uint32_t most = 0;
  for (int64_t i = 0; i < kBlockNumel; ++i) {
    const uint32_t magnitude = bits_of(x[i]) & 0x7fffffffu;
    most = magnitude > most ? magnitude : most;
  }
  unsigned char* const numbers = block + sizeof(float);
  if (most >= kInfinityBits) {
    const uint32_t scale = kQuietNan;
    __builtin_memcpy(block, &scale, sizeof scale);
    __builtin_memset(numbers, 0, block_nbytes(bits) - sizeof(float));
    return false;
  }
  float scale = float_of(most) / most_of_bits<bits>();
  if (scale < 0x1p-126f) scale = 0x1p-126f;  // of denormals one over it would be infinite
  if (scale * most_of_bits<bits>() > kMostFinite) scale = float_of(bits_of(scale) - 1);  // it was rounded up
  const float inverse = 1.0f / scale;
  __builtin_memcpy(block, &scale, sizeof scale);
  signed char q[kBlockNumel];
  for (int64_t i = 0; i < kBlockNumel; ++i) {
    q[i] = static_cast<signed char>(static_cast<int>(__builtin_rintf(x[i] * inverse)));
  }
  if constexpr (bits == 8) {
    __builtin_memcpy(numbers, q, kBlockNumel);
  } else {
    constexpr int64_t kHalf = kBlockNumel / 2;
    unsigned char packed[kHalf];
    for (int64_t i = 0; i < kHalf; ++i) {
      packed[i] = static_cast<unsigned char>((static_cast<unsigned char>(q[i]) & 15u) |
                                             (static_cast<unsigned>(static_cast<unsigned char>(q[i + kHalf])) << 4));
    }
    __builtin_memcpy(numbers, packed, kHalf);
  }
  return true;
}

template <int bits>
[[gnu::always_inline]] inline void unpack_block(const unsigned char* block, float* x) {
  float scale;
  __builtin_memcpy(&scale, block, sizeof scale);
  if constexpr (bits == 8) {
    signed char q[kBlockNumel];
    __builtin_memcpy(q, block + sizeof scale, sizeof q);
    for (int64_t i = 0; i < kBlockNumel; ++i) x[i] = static_cast<float>(q[i]) * scale;
  } else {
    constexpr int64_t kHalf = kBlockNumel / 2;
    unsigned char packed[kHalf];
    __builtin_memcpy(packed, block + sizeof scale, sizeof packed);
    for (int64_t i = 0; i < kHalf; ++i) {
      x[i] = static_cast<float>(static_cast<int>((packed[i] & 15u) ^ 8u) - 8) * scale;
      x[i + kHalf] = static_cast<float>(static_cast<int>((packed[i] >> 4) ^ 8u) - 8) * scale;
    }
  }
}

template <class V, DType dtype, int bits>
void quantize_all(const void* values, int64_t numel, unsigned char* block) {
  for (int64_t at = 0; at < numel; at += kBlockNumel, block += block_nbytes(bits)) {
    alignas(64) float x[kBlockNumel];
    load_block<V, dtype>(values, at, numel, x);
    pack_block<bits>(x, block);
  }
}

template <class V, DType dtype, int bits>
void dequantize_all(const unsigned char* block, void* values, int64_t numel) {
  for (int64_t at = 0; at < numel; at += kBlockNumel, block += block_nbytes(bits)) {
    alignas(64) float x[kBlockNumel];
    unpack_block<bits>(block, x);
    store_block<V, dtype>(x, values, at, numel);
  }
}

template <class V, int bits>
void quantize_feeding_back(const float* values, int64_t numel, unsigned char* block, const ErrorFeedback& feedback) {
  const float keep = feedback.keep, take = 1.0f - feedback.keep;
  for (int64_t at = 0; at < numel; at += kBlockNumel, block += block_nbytes(bits)) {
    alignas(64) float x[kBlockNumel], error[kBlockNumel] = {}, arrives[kBlockNumel];
    load_block<V, DType::f32>(values, at, numel, x);
    if (!feedback.forgets) load_block<V, DType::bf16>(feedback.errors, at, numel, error);
    for (int64_t i = 0; i < kBlockNumel; ++i) x[i] = x[i] + error[i];
    if (pack_block<bits>(x, block)) {
      unpack_block<bits>(block, arrives);
      for (int64_t i = 0; i < kBlockNumel; ++i) error[i] = keep * error[i] + take * (x[i] - arrives[i]);
    }
    store_block<V, DType::bf16>(error, feedback.errors, at, numel);
  }
}

template <class V, int bits>
void quantize_of(const void* values, DType dtype, int64_t numel, unsigned char* blocks) {
  switch (dtype) {
    case DType::f32: return quantize_all<V, DType::f32, bits>(values, numel, blocks);
    case DType::bf16: return quantize_all<V, DType::bf16, bits>(values, numel, blocks);
    case DType::f16: return quantize_all<V, DType::f16, bits>(values, numel, blocks);
  }
}

template <class V, int bits>
void dequantize_to(const unsigned char* blocks, void* values, DType dtype, int64_t numel) {
  switch (dtype) {
    case DType::f32: return dequantize_all<V, DType::f32, bits>(blocks, values, numel);
    case DType::bf16: return dequantize_all<V, DType::bf16, bits>(blocks, values, numel);
    case DType::f16: return dequantize_all<V, DType::f16, bits>(blocks, values, numel);
  }
}

template <class V>
void quantize_any(const void* values, DType dtype, int64_t numel, int bits, void* blocks) {
  auto* const to = static_cast<unsigned char*>(blocks);
  return bits == 8 ? quantize_of<V, 8>(values, dtype, numel, to) : quantize_of<V, 4>(values, dtype, numel, to);
}

template <class V>
void dequantize_any(const void* blocks, int bits, void* values, DType dtype, int64_t numel) {
  const auto* const from = static_cast<const unsigned char*>(blocks);
  return bits == 8 ? dequantize_to<V, 8>(from, values, dtype, numel) : dequantize_to<V, 4>(from, values, dtype, numel);
}

template <class V>
void quantize_with_errors_any(const float* values, int64_t numel, int bits, void* blocks,
                              const ErrorFeedback& feedback) {
  auto* const to = static_cast<unsigned char*>(blocks);
  return bits == 8 ? quantize_feeding_back<V, 8>(values, numel, to, feedback)
                   : quantize_feeding_back<V, 4>(values, numel, to, feedback);
}

template <class V>
BlockKernels block_kernels() {
  return {quantize_any<V>, dequantize_any<V>, quantize_with_errors_any<V>};
}

}  // namespace
}  // namespace shoal::kernels
