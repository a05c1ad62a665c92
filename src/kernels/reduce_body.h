// The ordered sums on vectors of any width, written once. An instruction set's file includes this after its lanes_*.h
// and hands out reduce_kernels<V, Squares, kRuns>(). The plain form is reduce_reference.cpp.
#pragma once

#include "kernels/isa.h"
#include "kernels/lanes_one.h"

namespace shoal::kernels {
namespace {

// Rounds a sum, and stores it where the fold ends.
template <class V, DType out_dtype, DType rounding>
[[gnu::always_inline]] inline void store_rounded(void* out, int64_t i, typename V::F sum) {
  if constexpr (out_dtype != rounding) {
    alignas(64) uint16_t narrow[V::kWidth];
    V::template store<rounding>(narrow, 0, sum);
    sum = V::template load<rounding>(narrow, 0);
  }
  V::template store<out_dtype>(out, i, sum);
}

// The fold of kCount vectors that begin at element i. Every source is read before anything is written there.
template <class V, DType source_dtype, DType out_dtype, DType rounding, int kCount>
[[gnu::always_inline]] inline void fold_at(const OrderedFold& a, int64_t i, typename V::F carry, typename V::F post) {
  typename V::F sum[kCount];
  int k = 0;
  if (a.carry == 0) {
    for (int j = 0; j < kCount; ++j) sum[j] = V::template load<source_dtype>(a.sources[0], i + j * V::kWidth);
    k = 1;
  } else {
    for (int j = 0; j < kCount; ++j) sum[j] = V::mul(carry, V::template load<out_dtype>(a.out, i + j * V::kWidth));
  }
  for (; k < a.source_count; ++k) {
    const void* source = a.sources[k];
    for (int j = 0; j < kCount; ++j) {
      sum[j] = V::add(sum[j], V::template load<source_dtype>(source, i + j * V::kWidth));
    }
  }
  for (int j = 0; j < kCount; ++j) {
    store_rounded<V, out_dtype, rounding>(a.out, i + j * V::kWidth, V::mul(post, sum[j]));
  }
}

// The same by groups. What has no value yet is null in the first addition: the first leaf is stored, not added.
template <class V, DType source_dtype, DType out_dtype, DType rounding, int kCount>
[[gnu::always_inline]] inline void fold_groups_at(const OrderedFold& a, int64_t i, typename V::F carry,
                                                  typename V::F post) {
  static_assert(kCount == 1);
  using F = typename V::F;
  bool has_sum = a.carry != 0, has_open = a.before > 0;
  F sum = has_sum ? V::mul(carry, V::template load<out_dtype>(a.out, i)) : V::set(0);
  F open = has_open ? V::template load<DType::f32>(a.open, i) : V::set(0);
  int64_t in_group = a.before;
  for (int k = 0; k < a.source_count; ++k) {
    const F leaf = V::template load<source_dtype>(a.sources[k], i);
    open = has_open ? V::add(open, leaf) : leaf;
    has_open = true;
    ++in_group;
    if (in_group < a.group && !(a.closes && k + 1 == a.source_count)) continue;
    sum = has_sum ? V::add(sum, open) : open;
    has_sum = true;
    has_open = false;
    in_group = 0;
  }
  if (has_open) V::template store<DType::f32>(a.open, i, open);
  if (has_sum) store_rounded<V, out_dtype, rounding>(a.out, i, V::mul(post, sum));
}

template <class V, DType source_dtype, DType out_dtype, DType rounding>
void fold_all(const OrderedFold& args) {
  const OrderedFold a = args;
  constexpr int kCount = 4;
  int64_t i = 0;
  const typename V::F carry = V::set(a.carry), post = V::set(a.post);
  if (a.group > 0) {
    for (; i + V::kWidth <= a.numel; i += V::kWidth) {
      fold_groups_at<V, source_dtype, out_dtype, rounding, 1>(a, i, carry, post);
    }
    for (; i < a.numel; ++i) fold_groups_at<OneLane, source_dtype, out_dtype, rounding, 1>(a, i, a.carry, a.post);
    return;
  }
  for (; i + kCount * V::kWidth <= a.numel; i += kCount * V::kWidth) {
    fold_at<V, source_dtype, out_dtype, rounding, kCount>(a, i, carry, post);
  }
  for (; i + V::kWidth <= a.numel; i += V::kWidth) {
    fold_at<V, source_dtype, out_dtype, rounding, 1>(a, i, carry, post);
  }
  for (; i < a.numel; ++i) fold_at<OneLane, source_dtype, out_dtype, rounding, 1>(a, i, a.carry, a.post);
}

template <class V, DType source_dtype>
void fold_by_out(const OrderedFold& a) {
  switch (a.rounding) {
    case DType::f32: return fold_all<V, source_dtype, DType::f32, DType::f32>(a);
    case DType::bf16:
      if (a.out_dtype == DType::f32) return fold_all<V, source_dtype, DType::f32, DType::bf16>(a);
      return fold_all<V, source_dtype, DType::bf16, DType::bf16>(a);
    case DType::f16:
      if (a.out_dtype == DType::f32) return fold_all<V, source_dtype, DType::f32, DType::f16>(a);
      return fold_all<V, source_dtype, DType::f16, DType::f16>(a);
  }
}

template <class V>
void fold(const OrderedFold& a) {
  switch (a.source_dtype) {
    case DType::f32: return fold_by_out<V, DType::f32>(a);
    case DType::bf16: return fold_by_out<V, DType::bf16>(a);
    case DType::f16: return fold_by_out<V, DType::f16>(a);
  }
}

// A run is chains of dependent additions by contract: a few vectors of them fill the pipelines, of one run where it has
// four, else of kRuns side by side. More would read memory in more places at a time, which is slower.
template <class Squares, int kRuns, DType dtype>
[[gnu::always_inline]] inline void runs_at(const void* values, int64_t begin, double* runs) {
  Squares squares[kRuns];
  for (int64_t i = begin; i < begin + kRunNumel; i += 8) {
    for (int r = 0; r < kRuns; ++r) squares[r].template add<dtype>(values, i + r * kRunNumel);
  }
  for (int r = 0; r < kRuns; ++r) runs[r] = squares[r].sum();
}

// A last run that is not whole.
template <DType dtype>
double short_run(const void* values, int64_t begin, int64_t end) {
  double lanes[8] = {};
  for (int64_t i = begin; i < end; ++i) {
    const double x = load_element<dtype>(values, i);
    lanes[(i - begin) % 8] += x * x;
  }
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

template <class Squares, int kRuns, DType dtype>
void squares_all(const void* values, int64_t numel, int64_t first_run, double* pieces) {
  static_assert(kBlockRuns % kRuns == 0);
  const int64_t end_run = first_run + runs_of(numel);
  double runs[kBlockRuns];
  int64_t at = 0;  // the first element of the run
  for (int64_t run = first_run; run < end_run;) {
    const int64_t block_end = (run / kBlockRuns + 1) * kBlockRuns;
    const int64_t end = block_end < end_run ? block_end : end_run;
    const int64_t count = end - run;
    int64_t r = 0;
    for (; r + kRuns <= count && at + kRuns * kRunNumel <= numel; r += kRuns, at += kRuns * kRunNumel) {
      runs_at<Squares, kRuns, dtype>(values, at, runs + r);
    }
    for (; r < count && at + kRunNumel <= numel; ++r, at += kRunNumel) runs_at<Squares, 1, dtype>(values, at, runs + r);
    if (r < count) runs[r] = short_run<dtype>(values, at, numel);
    pieces += write_pieces(runs, run, end, pieces);
    run = end;
  }
}

template <class Squares, int kRuns>
void squares(const void* values, DType dtype, int64_t numel, int64_t first_run, double* pieces) {
  switch (dtype) {
    case DType::f32: return squares_all<Squares, kRuns, DType::f32>(values, numel, first_run, pieces);
    case DType::bf16: return squares_all<Squares, kRuns, DType::bf16>(values, numel, first_run, pieces);
    case DType::f16: return squares_all<Squares, kRuns, DType::f16>(values, numel, first_run, pieces);
  }
}

template <class V, class Squares, int kRuns>
ReduceKernels reduce_kernels() {
  return {fold<V>, squares<Squares, kRuns>};
}

}  // namespace
}  // namespace shoal::kernels
