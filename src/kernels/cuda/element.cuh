// Elements in registers: conversions with the roundings of kernels/element.h, and how a thread reads and writes them.
//
// [Note: packs]
// A thread works on kPack elements at a time: two vectors of kVector elements, or kPack single ones where alignment
// allows no vector. Neighbouring threads take neighbouring vectors, so that each access of a warp covers whole sectors
// in every dtype: 16 bytes a thread of fp32, 8 of the two-byte dtypes. (Eight consecutive elements a thread would be 16
// bytes of two-byte dtypes, but fp32 would then be written in halves of sectors.) The compiler cannot see that a
// pointer it read from memory points to device memory; told so, it uses the instructions for that instead of generic
// ones.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "shoal/dtype.h"

namespace shoal::kernels::cuda {
namespace {

constexpr int kPack = 8;
constexpr int kVector = 4;

template <DType dtype>
struct Bits {
  using Type = uint16_t;
};
template <>
struct Bits<DType::f32> {
  using Type = float;
};

template <DType dtype>
__device__ inline float to_float(typename Bits<dtype>::Type bits) {
  if constexpr (dtype == DType::f32) return bits;
  if constexpr (dtype == DType::bf16) return __uint_as_float(static_cast<uint32_t>(bits) << 16);
  if constexpr (dtype == DType::f16) return __half2float(__ushort_as_half(bits));
}
template <DType dtype>
__device__ inline typename Bits<dtype>::Type from_float(float value) {
  if constexpr (dtype == DType::f32) return value;
  if constexpr (dtype == DType::bf16) return __bfloat16_as_ushort(__float2bfloat16_rn(value));
  if constexpr (dtype == DType::f16) return __half_as_ushort(__float2half_rn(value));
}

// See [Note: the split master] in kernels/convert.h.
__device__ inline uint16_t high_half(float master) {
  return static_cast<uint16_t>(((master == master ? __float_as_uint(master) : 0x7fc00000u) + 0x8000u) >> 16);
}
__device__ inline uint16_t low_half(float master) {
  return master == master ? static_cast<uint16_t>(__float_as_uint(master)) : uint16_t{0};
}
__device__ inline float whole_of(uint16_t weight, uint16_t remainder) {
  if ((weight & 0x7fffu) == 0 && remainder >> 15 != 0) remainder = 0;
  const uint32_t high = static_cast<uint32_t>(weight) - (remainder >> 15);
  return __uint_as_float((high << 16) | remainder);
}

template <size_t kNbytes>
struct Word;
template <>
struct Word<2> {
  using Type = uint16_t;
};
template <>
struct Word<4> {
  using Type = uint32_t;
};
template <>
struct Word<8> {
  using Type = uint2;
};
template <>
struct Word<16> {
  using Type = uint4;
};

// `count` vectors of kWidth elements, the first at element `begin`, `stride` elements apart. What lies beyond them
// reads as zero and is not written. See [Note: packs].
template <class Index, int kWidth>
struct Access {
  static constexpr int kVectors = kPack / kWidth;
  Index begin;
  int stride;
  int count;

  template <class T>
  __device__ void load(const void* memory, T (&out)[kPack]) const {
    using Vector = typename Word<kWidth * sizeof(T)>::Type;
    __builtin_assume(__isGlobal(memory));
    const T* from = static_cast<const T*>(memory) + begin;
    Vector vectors[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      vectors[v] = v < count ? *reinterpret_cast<const Vector*>(from + v * stride) : Vector{};
    }
    __builtin_memcpy(out, vectors, sizeof out);
  }
  template <class T>
  __device__ void store(void* memory, const T (&in)[kPack]) const {
    using Vector = typename Word<kWidth * sizeof(T)>::Type;
    __builtin_assume(__isGlobal(memory));
    T* to = static_cast<T*>(memory) + begin;
    Vector vectors[kVectors];
    __builtin_memcpy(vectors, in, sizeof in);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (v < count) *reinterpret_cast<Vector*>(to + v * stride) = vectors[v];
    }
  }
};

template <DType dtype, class A>
__device__ inline void load_floats(const A& access, const void* memory, float (&out)[kPack]) {
  typename Bits<dtype>::Type bits[kPack];
  access.load(memory, bits);
#pragma unroll
  for (int k = 0; k < kPack; ++k) out[k] = to_float<dtype>(bits[k]);
}
template <DType dtype, class A>
__device__ inline void store_floats(const A& access, void* memory, const float (&in)[kPack]) {
  typename Bits<dtype>::Type bits[kPack];
#pragma unroll
  for (int k = 0; k < kPack; ++k) bits[k] = from_float<dtype>(in[k]);
  access.store(memory, bits);
}

// The same with the dtype known at run time only.
template <class A>
__device__ inline void load_floats(const A& access, DType dtype, const void* memory, float (&out)[kPack]) {
  if (dtype == DType::f32) return load_floats<DType::f32>(access, memory, out);
  if (dtype == DType::bf16) return load_floats<DType::bf16>(access, memory, out);
  load_floats<DType::f16>(access, memory, out);
}
template <class A>
__device__ inline void store_floats(const A& access, DType dtype, void* memory, const float (&in)[kPack]) {
  if (dtype == DType::f32) return store_floats<DType::f32>(access, memory, in);
  if (dtype == DType::bf16) return store_floats<DType::bf16>(access, memory, in);
  store_floats<DType::f16>(access, memory, in);
}

}  // namespace
}  // namespace shoal::kernels::cuda
