// The ordered sums on vectors of any width, written once. An instruction set's file includes this after its lanes_*.h
// and hands out reduce_kernels<V, Squares, kBlocks>(). The plain form is reduce_reference.cpp.
#pragma once

#include "kernels/isa.h"
#include "kernels/lanes_one.h"

namespace shoal::kernels {
namespace {

// An element times `pre`. Times one is the element itself, so that case needs no multiplication.
template <class V, DType dtype, bool kScales>
[[gnu::always_inline]] inline typename V::F scaled(const void* source, int64_t i, typename V::F pre) {
  const typename V::F x = V::template load<dtype>(source, i);
  if constexpr (kScales) return V::mul(pre, x);
  return x;
}

// The mean of kCount vectors that begin at element i. Every source is read before anything is written there.
template <class V, DType source_dtype, DType out_dtype, bool kScales, int kCount>
[[gnu::always_inline]] inline void mean_at(const OrderedMean& a, int64_t i, typename V::F pre, typename V::F post) {
  typename V::F sum[kCount];
  for (int j = 0; j < kCount; ++j) sum[j] = scaled<V, source_dtype, kScales>(a.sources[0], i + j * V::kWidth, pre);
  for (int k = 1; k < a.source_count; ++k) {
    const void* source = a.sources[k];
    for (int j = 0; j < kCount; ++j) {
      sum[j] = V::add(sum[j], scaled<V, source_dtype, kScales>(source, i + j * V::kWidth, pre));
    }
  }
  for (int j = 0; j < kCount; ++j) {
    typename V::F mean = V::mul(post, sum[j]);
    if (a.accumulate) mean = V::add(V::template load<out_dtype>(a.out, i + j * V::kWidth), mean);
    V::template store<out_dtype>(a.out, i + j * V::kWidth, mean);
  }
}

template <class V, DType source_dtype, DType out_dtype, bool kScales>
void mean_all(const OrderedMean& args) {
  const OrderedMean a = args;
  constexpr int kCount = 4;
  int64_t i = 0;
  const typename V::F pre = V::set(a.pre), post = V::set(a.post);
  for (; i + kCount * V::kWidth <= a.numel; i += kCount * V::kWidth) {
    mean_at<V, source_dtype, out_dtype, kScales, kCount>(a, i, pre, post);
  }
  for (; i + V::kWidth <= a.numel; i += V::kWidth) mean_at<V, source_dtype, out_dtype, kScales, 1>(a, i, pre, post);
  for (; i < a.numel; ++i) mean_at<OneLane, source_dtype, out_dtype, kScales, 1>(a, i, a.pre, a.post);
}

template <class V, DType source_dtype, DType out_dtype>
void mean_by_scale(const OrderedMean& a) {
  if (a.pre == 1.0f) return mean_all<V, source_dtype, out_dtype, false>(a);
  return mean_all<V, source_dtype, out_dtype, true>(a);
}

template <class V, DType source_dtype>
void mean_by_out(const OrderedMean& a) {
  switch (a.out_dtype) {
    case DType::f32: return mean_by_scale<V, source_dtype, DType::f32>(a);
    case DType::bf16: return mean_by_scale<V, source_dtype, DType::bf16>(a);
    case DType::f16: return mean_by_scale<V, source_dtype, DType::f16>(a);
  }
}

template <class V>
void mean(const OrderedMean& a) {
  switch (a.source_dtype) {
    case DType::f32: return mean_by_out<V, DType::f32>(a);
    case DType::bf16: return mean_by_out<V, DType::bf16>(a);
    case DType::f16: return mean_by_out<V, DType::f16>(a);
  }
}

inline double sum_in_order(const double* lanes) {
  double sum = lanes[0];
  for (int j = 1; j < 8; ++j) sum += lanes[j];
  return sum;
}

// A block is a chain of dependent additions by contract, so kBlocks of them run side by side to fill the pipelines.
template <class Squares, int kBlocks, DType dtype>
void squares_all(const void* values, int64_t numel, double* sums) {
  alignas(64) double lanes[8];
  int64_t begin = 0;
  for (; begin + kBlocks * kNormBlock <= numel; begin += kBlocks * kNormBlock) {
    Squares squares[kBlocks];
    for (int64_t i = begin; i < begin + kNormBlock; i += 8) {
      for (int b = 0; b < kBlocks; ++b) squares[b].template add<dtype>(values, i + b * kNormBlock);
    }
    for (int b = 0; b < kBlocks; ++b) {
      squares[b].store(lanes);
      *sums++ = sum_in_order(lanes);
    }
  }
  for (; begin < numel; begin += kNormBlock) {
    const int64_t end = begin + kNormBlock < numel ? begin + kNormBlock : numel;
    Squares squares;
    int64_t i = begin;
    for (; i + 8 <= end; i += 8) squares.template add<dtype>(values, i);
    squares.store(lanes);
    for (int j = 0; i < end; ++i, ++j) {
      const double x = load_element<dtype>(values, i);
      lanes[j] += x * x;
    }
    *sums++ = sum_in_order(lanes);
  }
}

template <class Squares, int kBlocks>
void squares(const void* values, DType dtype, int64_t numel, double* sums) {
  switch (dtype) {
    case DType::f32: return squares_all<Squares, kBlocks, DType::f32>(values, numel, sums);
    case DType::bf16: return squares_all<Squares, kBlocks, DType::bf16>(values, numel, sums);
    case DType::f16: return squares_all<Squares, kBlocks, DType::f16>(values, numel, sums);
  }
}

template <class V, class Squares, int kBlocks>
ReduceKernels reduce_kernels() {
  return {mean<V>, squares<Squares, kBlocks>};
}

}  // namespace
}  // namespace shoal::kernels
