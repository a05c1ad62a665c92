// The backward kernels of norm.cu.
//
// [Note: rows on their way]
// A block takes every n-th row (or every n-th few rows, where it has room), and a thread the same columns of each: the
// weights' gradient is a sum in its registers. The next rows are copied into a ring in shared memory meanwhile; each
// thread reads what it copied itself, and the only barrier is that of the sums over a row. At the end a block writes
// one line of partial sums, and a second kernel adds the lines. All in fixed order.
#pragma once

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/row_sum.cuh"

namespace shoal::kernels::cuda {
namespace {

constexpr int kFewElements = 8, kManyElements = 16;  // a thread

template <int kElements>
constexpr int kBackwardThreads = kElements == kFewElements ? 512 : 1024;
// Rows in the ring: what a processor's shared memory holds of x, dy and dsum.
template <int kNbytesAThread>
constexpr int kRingDepth = 200 / (3 * kNbytesAThread);

template <typename T, int kWidth, int kElements, bool kCentered>
__global__ void __launch_bounds__(kBackwardThreads<kElements>, 1024 / kBackwardThreads<kElements>)
    norm_backward(NormBackward args, int lanes) {
  constexpr int kThreads = kBackwardThreads<kElements>;
  constexpr int kPacks = kElements / kWidth;
  constexpr int kSums = kCentered ? 2 : 1;
  constexpr int kDepth = kRingDepth<kElements * sizeof(T)>;
  static_assert(kDepth > 0);
  using HeldPack = Held<T, kWidth>;
  extern __shared__ uint4 memory[];
  __shared__ float shared[2][kSums * kThreads / 32];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread & (lanes - 1);
  const int groups = kThreads / lanes;
  const int columns = static_cast<int>(args.columns);
  const float share = 1.0f / static_cast<float>(columns);
  const auto column_of = [&](int i) { return (i * lanes + lane) * kWidth; };
  const int tensors = args.dsum != nullptr ? 3 : 2;
  // Pack i of x, dy or dsum in one place of the ring.
  const auto ring = [&](int place, int tensor, int i) {
    return reinterpret_cast<Pack<T, kWidth>*>(memory) + ((place * tensors + tensor) * kPacks + i) * kThreads + thread;
  };
  const auto fetch = [&](int64_t row, int place) {
    if (row < args.rows) {
      const int64_t begin = row * columns;
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        const int column = column_of(i);
        if (column >= columns) continue;
        copy_ahead(ring(place, 0, i), args.x, begin + column);
        copy_ahead(ring(place, 1, i), args.dy, begin + column);
        if (args.dsum != nullptr) copy_ahead(ring(place, 2, i), args.dsum, begin + column);
      }
    }
    end_group();
  };

  const int64_t step = int64_t{gridDim.x} * groups;
  int64_t row = int64_t{blockIdx.x} * groups + thread / lanes;
#pragma unroll
  for (int place = 0; place < kDepth; ++place) fetch(row + place * step, place);
  float next_rstd = row < args.rows ? args.rstd[row] : 0;
  float next_mean = kCentered && row < args.rows ? args.mean[row] : 0;
  // The weight, in registers where there is room.
  constexpr bool kKeepsWeight = kElements == kFewElements;
  HeldPack kept[kKeepsWeight ? kPacks : 1];
  if constexpr (kKeepsWeight) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (column_of(i) < columns) kept[i].load(args.weight, column_of(i));
    }
  }
  // One pack of the row at hand: x normed, dy, and the weight.
  const auto read = [&](int place, int i, float mean, float rstd, float(&normed)[kWidth], float(&dy)[kWidth],
                        float(&weight)[kWidth]) {
    HeldPack held[3];
    held[0].load(ring(place, 0, i), 0);
    held[1].load(ring(place, 1, i), 0);
    if constexpr (kKeepsWeight) {
      held[2] = kept[i];
    } else {
      held[2].load(args.weight, column_of(i));
    }
    held[0].to_floats(normed);
    held[1].to_floats(dy);
    held[2].to_floats(weight);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) normed[j] = (normed[j] - mean) * rstd;
  };
  float dweight[kElements] = {};
  float dbias[kCentered ? kElements : 1] = {};

  int turn = 0, place = 0;
  for (int64_t first = int64_t{blockIdx.x} * groups; first < args.rows; first += step, row += step) {
    const bool live = row < args.rows;
    const int64_t begin = row * columns;
    const float rstd = next_rstd, mean = next_mean;
    if (row + step < args.rows) {
      next_rstd = args.rstd[row + step];
      if (kCentered) next_mean = args.mean[row + step];
    }
    wait_for_groups(kDepth - 1);
    float sums[kSums] = {};
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (!live || column_of(i) >= columns) continue;
      float normed[kWidth], dy[kWidth], weight[kWidth];
      read(place, i, mean, rstd, normed, dy, weight);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const float weighted = dy[j] * weight[j];
        const int e = i * kWidth + j;
        sums[0] = fmaf(weighted, normed[j], sums[0]);
        dweight[e] = fmaf(dy[j], normed[j], dweight[e]);
        if (kCentered) {
          sums[kSums - 1] += weighted;
          dbias[kCentered ? e : 0] += dy[j];
        }
      }
    }
    sum_over_row(sums, lanes, shared[turn]);
    turn ^= 1;
    const float along = sums[0] * share;
    const float center = kCentered ? sums[kSums - 1] * share : 0;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (!live || column_of(i) >= columns) continue;
      float normed[kWidth], dx[kWidth], weight[kWidth], added[kWidth];
      read(place, i, mean, rstd, normed, dx, weight);
      HeldPack held;
      if (args.dsum != nullptr) held.load(ring(place, 2, i), 0);
      held.to_floats(added);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        float d = fmaf(-normed[j], along, dx[j] * weight[j]);
        if (kCentered) d -= center;
        dx[j] = args.dsum != nullptr ? fmaf(d, rstd, added[j]) : d * rstd;
      }
      held.round_from(dx);
      held.store(args.dx, begin + column_of(i));
    }
    fetch(row + kDepth * step, place);
    place = place + 1 == kDepth ? 0 : place + 1;
  }

  // The ring becomes room for [element][thread] sums; columns of all groups are added in the groups' order.
  wait_for_groups(0);
  float* sums = reinterpret_cast<float*>(memory);
  const int parts = kCentered && args.dbias != nullptr ? 2 : 1;
  float* line = args.partials + int64_t{blockIdx.x} * columns * parts;
  for (int part = 0; part < parts; ++part, line += columns) {
    __syncthreads();
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      sums[e * kThreads + thread] = kCentered && part == 1 ? dbias[kCentered ? e : 0] : dweight[e];
    }
    __syncthreads();
    for (int column = thread; column < columns; column += kThreads) {
      const int pack = column / kWidth;
      const int e = pack / lanes * kWidth + column % kWidth;
      float sum = 0;
      for (int g = 0; g < groups; ++g) sum += sums[e * kThreads + g * lanes + (pack & (lanes - 1))];
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
  if (index < line_numel) {
#pragma unroll 8
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
}  // namespace shoal::kernels::cuda
