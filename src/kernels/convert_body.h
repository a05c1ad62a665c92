// The conversions on vectors of any width, written once. An instruction set's file includes this after its lanes_*.h
// and hands out convert_kernels<V>(). The plain form is convert_reference.cpp.
#pragma once

#include "kernels/isa.h"
#include "kernels/lanes_one.h"

namespace shoal::kernels {
namespace {

template <class V, DType in_dtype, DType out_dtype>
void convert_all(const void* in, void* out, int64_t numel) {
  if constexpr (in_dtype == out_dtype) {
    if (numel > 0) __builtin_memmove(out, in, static_cast<uint64_t>(numel) * nbytes_of(in_dtype));
  } else {
    int64_t i = 0;
    for (; i + V::kWidth <= numel; i += V::kWidth) {
      V::template store<out_dtype>(out, i, V::template load<in_dtype>(in, i));
    }
    for (; i < numel; ++i) store_element<out_dtype>(out, i, load_element<in_dtype>(in, i));
  }
}

template <class V, DType in_dtype, DType out_dtype>
void add_all(const void* in, void* out, int64_t numel) {
  int64_t i = 0;
  for (; i + V::kWidth <= numel; i += V::kWidth) {
    V::template store<out_dtype>(out, i,
                                 V::add(V::template load<out_dtype>(out, i), V::template load<in_dtype>(in, i)));
  }
  for (; i < numel; ++i) {
    store_element<out_dtype>(out, i, load_element<out_dtype>(out, i) + load_element<in_dtype>(in, i));
  }
}

template <class V, DType in_dtype>
void convert_by_out(const void* in, void* out, DType out_dtype, int64_t numel) {
  switch (out_dtype) {
    case DType::f32: return convert_all<V, in_dtype, DType::f32>(in, out, numel);
    case DType::bf16: return convert_all<V, in_dtype, DType::bf16>(in, out, numel);
    case DType::f16: return convert_all<V, in_dtype, DType::f16>(in, out, numel);
  }
}

template <class V, DType in_dtype>
void add_by_out(const void* in, void* out, DType out_dtype, int64_t numel) {
  switch (out_dtype) {
    case DType::f32: return add_all<V, in_dtype, DType::f32>(in, out, numel);
    case DType::bf16: return add_all<V, in_dtype, DType::bf16>(in, out, numel);
    case DType::f16: return add_all<V, in_dtype, DType::f16>(in, out, numel);
  }
}

template <class V>
void convert_any(const void* in, DType in_dtype, void* out, DType out_dtype, int64_t numel) {
  switch (in_dtype) {
    case DType::f32: return convert_by_out<V, DType::f32>(in, out, out_dtype, numel);
    case DType::bf16: return convert_by_out<V, DType::bf16>(in, out, out_dtype, numel);
    case DType::f16: return convert_by_out<V, DType::f16>(in, out, out_dtype, numel);
  }
}

template <class V>
void add_any(const void* in, DType in_dtype, void* out, DType out_dtype, int64_t numel) {
  switch (in_dtype) {
    case DType::f32: return add_by_out<V, DType::f32>(in, out, out_dtype, numel);
    case DType::bf16: return add_by_out<V, DType::bf16>(in, out, out_dtype, numel);
    case DType::f16: return add_by_out<V, DType::f16>(in, out, out_dtype, numel);
  }
}

template <class V>
void split_all(const float* master, void* weight, void* remainder, int64_t numel) {
  int64_t i = 0;
  for (; i + V::kWidth <= numel; i += V::kWidth) {
    V::store_split(weight, remainder, i, V::template load<DType::f32>(master, i));
  }
  for (; i < numel; ++i) OneLane::store_split(weight, remainder, i, master[i]);
}

template <class V>
void join_all(const void* weight, const void* remainder, float* master, int64_t numel) {
  int64_t i = 0;
  for (; i + V::kWidth <= numel; i += V::kWidth) {
    V::template store<DType::f32>(master, i, V::load_split(weight, remainder, i));
  }
  for (; i < numel; ++i) master[i] = OneLane::load_split(weight, remainder, i);
}

template <class V>
ConvertKernels convert_kernels() {
  return {convert_any<V>, add_any<V>, split_all<V>, join_all<V>};
}

}  // namespace
}  // namespace shoal::kernels
