// The backward kernels of norm.cu.
//
// [Note: rows on their way]
// A block takes every n-th row (or every n-th few rows, where it has room), and a thread the same columns of each: the
// weights' gradient is a sum in its registers. The next rows are copied into a ring in shared memory meanwhile; each
// thread reads what it copied itself, and the only barrier is that of the sums over a row. At the end a block writes
// one line of partial sums, and a second kernel adds the lines. All in fixed order.
#pragma once

#include "models/ops/cuda/async_copy.cuh"
#include "models/ops/cuda/early_launch.cuh"
#include "models/ops/cuda/norm.h"
#include "models/ops/cuda/row_sum.cuh"

namespace shoal::models::ops::cuda {
namespace {

constexpr int kBackwardElements = 16;  // a thread
// Threads of a block, which has a processor's registers and shared memory, 220 KiB of it, to itself: few for rows of up
// to 4096 elements, of which it then takes several at a time.
constexpr int kFewThreads = 768, kManyThreads = 1024;

// Rows in the ring, of x, dy and dsum. A GPU that has less memory has a ring of one row, or none and reads each element
// where it lies, twice; with the same bits.
template <typename T, int kThreads>
constexpr int kRingDepth = 220 * 1024 / (kThreads * 3 * kBackwardElements * static_cast<int>(sizeof(T)));

// At the end a block adds its groups' sums of each column, for which they lie in shared memory, [element][thread].
// Lines of it are a little longer than a block, so that a warp's 32 columns, of kWidth elements and the packs beside
// each other, are in 32 banks.
template <int kWidth, int kThreads>
constexpr int kSumStride = kThreads + 32 / kWidth;
template <int kWidth, int kThreads>
constexpr int kSumNbytes = kSumStride<kWidth, kThreads>* kBackwardElements* static_cast<int>(sizeof(float));

template <typename T, int kWidth, int kThreads, int kDepth, bool kCentered>
__global__ void __launch_bounds__(kThreads, 1) norm_backward(NormBackward args, int lanes) {
  constexpr int kPacks = kBackwardElements / kWidth;
  constexpr int kSums = kCentered ? 2 : 1;
  static_assert(kDepth >= 0 && kDepth <= 4);
  using HeldPack = Held<T, kWidth>;
  extern __shared__ uint4 memory[];
  __shared__ float shared[2][kSums * kThreads / 32];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread & (lanes - 1);
  const int groups = kThreads / lanes;
  const int columns = static_cast<int>(args.columns);
  const float share = 1.0f / static_cast<float>(columns);
  const auto column_of = [&](int i) { return (i * lanes + lane) * kWidth; };
  const bool with_dsum = args.dsum != nullptr;
  const int tensors = with_dsum ? 3 : 2;
  // Pack i of x, dy or dsum in one place of the ring.
  const auto ring = [&](int place, int tensor, int i) {
    return reinterpret_cast<Pack<T, kWidth>*>(memory) + ((place * tensors + tensor) * kPacks + i) * kThreads + thread;
  };
  // `begin` is the row's first element.
  const auto fetch = [&](bool exists, int64_t begin, int place) {
    if constexpr (kDepth == 0) return;
    if (exists) {
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        const int column = column_of(i);
        if (column >= columns) continue;
        copy_ahead(ring(place, 0, i), args.x, begin + column);
        copy_ahead(ring(place, 1, i), args.dy, begin + column);
        if (with_dsum) copy_ahead(ring(place, 2, i), args.dsum, begin + column);
      }
    }
    end_group();
  };

  // Of the row that begins there, from the ring or from where it lies.
  const auto load = [&](HeldPack& held, int64_t begin, int place, int tensor, int i) {
    if constexpr (kDepth == 0) {
      held.load(tensor == 0 ? args.x : tensor == 1 ? args.dy : args.dsum, begin + column_of(i));
    } else {
      held.load(ring(place, tensor, i), 0);
    }
  };

  const int64_t step = int64_t{gridDim.x} * groups;
  const int64_t stride = step * columns;
  int64_t row = int64_t{blockIdx.x} * groups + thread / lanes;
  int64_t begin = row * columns;
#pragma unroll
  for (int place = 0; place < kDepth; ++place) fetch(row + place * step < args.rows, begin + place * stride, place);
  float next_rstd = row < args.rows ? args.rstd[row] : 0;
  float next_mean = kCentered && row < args.rows ? args.mean[row] : 0;
  HeldPack weight[kPacks];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    if (column_of(i) < columns) weight[i].load(args.weight, column_of(i));
  }
  float dweight[kBackwardElements] = {};
  float dbias[kCentered ? kBackwardElements : 1] = {};

  int turn = 0, place = 0;
  for (int64_t first = int64_t{blockIdx.x} * groups; first < args.rows; first += step) {
    const int end = row < args.rows ? columns : 0;
    // x * rstd + shift is x normed.
    const float rstd = next_rstd, shift = kCentered ? -next_mean * rstd : 0;
    if (row + step < args.rows) {
      next_rstd = args.rstd[row + step];
      if (kCentered) next_mean = args.mean[row + step];
    }
    if constexpr (kDepth > 0) wait_for_groups(kDepth - 1);
    float sums[kSums] = {};
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (column_of(i) >= end) continue;
      HeldPack held[2];
      load(held[0], begin, place, 0, i);
      load(held[1], begin, place, 1, i);
      float x[kWidth], dy[kWidth], w[kWidth];
      held[0].to_floats(x);
      held[1].to_floats(dy);
      weight[i].to_floats(w);
      weight[i].forget();
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const float normed = kCentered ? fmaf(x[j], rstd, shift) : x[j] * rstd;
        const float weighted = dy[j] * w[j];
        const int e = i * kWidth + j;
        sums[0] = fmaf(weighted, normed, sums[0]);
        dweight[e] = fmaf(dy[j], normed, dweight[e]);
        if (kCentered) {
          sums[kSums - 1] += weighted;
          dbias[kCentered ? e : 0] += dy[j];
        }
      }
    }
    sum_over_row(sums, lanes, shared[turn]);
    turn ^= 1;
    // dx = rstd * (weighted - normed * along - center) + dsum, where along and center are means of the row: all but the
    // first term and the last are by_x * x + constant.
    const float along = sums[0] * share * rstd;
    const float by_x = -along * rstd;
    const float constant = kCentered ? -fmaf(along, shift, sums[kSums - 1] * share * rstd) : 0;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (column_of(i) >= end) continue;
      HeldPack held[3];
      load(held[0], begin, place, 0, i);
      load(held[1], begin, place, 1, i);
      if (with_dsum) load(held[2], begin, place, 2, i);
      float x[kWidth], dx[kWidth], w[kWidth], added[kWidth];
      held[0].to_floats(x);
      held[1].to_floats(dx);
      held[2].to_floats(added);  // zeros, where there is none
      weight[i].to_floats(w);
      weight[i].forget();
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const float rest = kCentered ? fmaf(x[j], by_x, added[j] + constant) : fmaf(x[j], by_x, added[j]);
        dx[j] = fmaf(dx[j] * w[j], rstd, rest);
      }
      held[0].round_from(dx);
      held[0].store(args.dx, begin + column_of(i));
    }
    fetch(row + kDepth * step < args.rows, begin + kDepth * stride, place);
    place = place + 1 >= kDepth ? 0 : place + 1;
    row += step;
    begin += stride;
  }

  let_next_kernel_begin();
  // The ring becomes room for the sums; columns of all groups are added in the groups' order.
  constexpr int kStride = kSumStride<kWidth, kThreads>;
  wait_for_groups(0);
  float* sums = reinterpret_cast<float*>(memory);
  const int parts = kCentered && args.dbias != nullptr ? 2 : 1;
  float* line = args.partials + int64_t{blockIdx.x} * columns * parts;
  for (int part = 0; part < parts; ++part, line += columns) {
    __syncthreads();
#pragma unroll
    for (int e = 0; e < kBackwardElements; ++e) {
      sums[e * kStride + thread] = kCentered && part == 1 ? dbias[kCentered ? e : 0] : dweight[e];
    }
    __syncthreads();
    for (int column = thread; column < columns; column += kThreads) {
      const int pack = column / kWidth;
      const int e = pack / lanes * kWidth + column % kWidth;
      float sum = 0;
      for (int g = 0; g < groups; ++g) sum += sums[e * kStride + g * lanes + (pack & (lanes - 1))];
      line[column] = sum;
    }
  }
}

constexpr int kSumColumns = 32;
constexpr int kSumRows = 32;

// Adds the lines: each of 32 threads a column takes every 32nd line, then the 32 are added in order.
template <typename T>
__global__ void __launch_bounds__(kSumColumns* kSumRows)
    sum_lines(const float* lines, int line_count, int64_t line_numel, int64_t columns, void* weight, void* bias) {
  __shared__ float shared[kSumRows][kSumColumns];
  const int64_t index = int64_t{blockIdx.x} * kSumColumns + threadIdx.x;
  float sum = 0;
  wait_for_kernel_before();
  if (index < line_numel) {
#pragma unroll 4
    for (int line = static_cast<int>(threadIdx.y); line < line_count; line += kSumRows) {
      sum += lines[line * line_numel + index];
    }
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || index >= line_numel) return;
  sum = 0;
#pragma unroll
  for (int y = 0; y < kSumRows; ++y) sum += shared[y][threadIdx.x];
  if (index < columns) {
    static_cast<T*>(weight)[index] = from_float<T>(sum);
  } else {
    static_cast<T*>(bias)[index - columns] = from_float<T>(sum);
  }
}

}  // namespace
}  // namespace shoal::models::ops::cuda
