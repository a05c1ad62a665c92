// What the models' kernels share: an element as fp32 and back, 16 bytes of elements at once, the choice of a dtype at
// run time, and how many blocks a launch takes. Everything here is of the including file alone.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/launch.cuh"
#include "shoal/dtype.h"

namespace shoal::models::ops::cuda {

using kernels::cuda::check_cuda;
using kernels::cuda::check_launch;
using kernels::cuda::stream_of;
using kernels::cuda::Stream;

namespace {

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

// Rounded to nearest even.
template <typename T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ __half from_float<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

// Elements that are loaded and stored by one instruction.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T values[kWidth];
};
template <typename T>
constexpr int kWidest = 16 / sizeof(T);

template <typename T, int kWidth>
__device__ __forceinline__ Pack<T, kWidth> load_pack(const void* memory, int64_t element) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(static_cast<const T*>(memory) + element);
}
template <typename T, int kWidth>
__device__ __forceinline__ void store_pack(void* memory, int64_t element, const Pack<T, kWidth>& pack) {
  *reinterpret_cast<Pack<T, kWidth>*>(static_cast<T*>(memory) + element) = pack;
}

// A pack as the words that it is loaded in. The compiler would spread elements of two bytes over a register each, and
// keep their fp32 values from one use to the next; a long row would not fit then. After forget() it knows nothing of
// them.
template <typename T, int kWidth>
struct Held {
  static constexpr bool kIsWide = sizeof(Pack<T, kWidth>) == 16;
  using Words = std::conditional_t<kIsWide, uint4, T>;
  static_assert(kIsWide || kWidth == 1);
  Words words = {};

  __device__ __forceinline__ void load(const void* memory, int64_t element) {
    words = *reinterpret_cast<const Words*>(static_cast<const T*>(memory) + element);
  }
  // What is not read again soon: it is the first to leave the caches.
  __device__ __forceinline__ void load_once(const void* memory, int64_t element) {
    words = __ldcs(reinterpret_cast<const Words*>(static_cast<const T*>(memory) + element));
  }
  __device__ __forceinline__ void store(void* memory, int64_t element) const {
    *reinterpret_cast<Words*>(static_cast<T*>(memory) + element) = words;
  }
  __device__ __forceinline__ void to_floats(float (&out)[kWidth]) const {
    if constexpr (!kIsWide) {
      out[0] = to_float(words);
    } else {
      const uint32_t all[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        if constexpr (std::is_same_v<T, float>) {
          out[w] = __uint_as_float(all[w]);
        } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
          out[2 * w] = __uint_as_float(all[w] << 16);
          out[2 * w + 1] = __uint_as_float(all[w] & 0xffff0000u);
        } else {
          __half2 two;
          __builtin_memcpy(&two, &all[w], sizeof two);
          out[2 * w] = __low2float(two);
          out[2 * w + 1] = __high2float(two);
        }
      }
    }
  }
  __device__ __forceinline__ void round_from(const float (&values)[kWidth]) {
    if constexpr (!kIsWide) {
      words = from_float<T>(values[0]);
    } else {
      Pack<T, kWidth> pack;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) pack.values[j] = from_float<T>(values[j]);
      __builtin_memcpy(&words, &pack, sizeof pack);
    }
  }
  __device__ __forceinline__ void forget() {
    if constexpr (kIsWide) asm volatile("" : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w));
  }
};

// Whether all of these may be accessed 16 bytes at a time; null is nothing to access.
template <typename... Pointers>
bool all_aligned(Pointers... pointers) {
  return (... && (reinterpret_cast<uintptr_t>(pointers) % 16 == 0));
}

template <typename T>
struct Tag {
  using Type = T;
};
// use(Tag<T>) with the C++ type of a dtype.
template <typename Use>
void with_type(DType dtype, const Use& use) {
  if (dtype == DType::f32) return use(Tag<float>());
  if (dtype == DType::bf16) return use(Tag<__nv_bfloat16>());
  use(Tag<__half>());
}
template <int kNumber>
struct Number {
  static constexpr int value = kNumber;
};

inline unsigned blocks_for(int64_t threads, int per_block) {
  const int64_t blocks = (threads + per_block - 1) / per_block;
  if (blocks > INT32_MAX) throw Error("cuda", "a tensor is too large for one launch. Use a smaller batch.");
  return static_cast<unsigned>(blocks);
}

}  // namespace
}  // namespace shoal::models::ops::cuda
