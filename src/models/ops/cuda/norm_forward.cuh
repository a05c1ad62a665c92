// The forward kernel of norm.cu.
//
// [Note: how a row is spread]
// A row belongs to `lanes` threads, a power of two, and each holds kElements of its elements in registers, so a row is
// read once, and all of it is under way before the first element is used. Rows of up to 4096 elements belong to a warp
// or less: no barrier, and the warps of a processor are at different points of their rows. Longer ones, and those that
// cannot be read 16 bytes at a time, have more threads.
#pragma once

#include "models/ops/cuda/norm.h"
#include "models/ops/cuda/pack.cuh"
#include "models/ops/cuda/row_sum.cuh"

namespace shoal::models::ops::cuda {
namespace {

// Threads of a block; kLanes is 0 where the number of lanes is known at run time only.
template <int kLanes>
constexpr int kForwardThreads = kLanes == 32 ? 128 : 256;

// Blocks that a processor is to hold, so that the compiler keeps the registers below its share.
template <int kNbytesAThread, int kThreads>
constexpr int kForwardBlocks = (kNbytesAThread <= 128 ? 896 : 131072 / kNbytesAThread) / kThreads;

template <typename T, int kWidth, int kElements, int kLanes, bool kCentered>
__global__ void __launch_bounds__(kForwardThreads<kLanes>,
                                  kForwardBlocks<kElements * sizeof(T), kForwardThreads<kLanes>>)
    norm_forward(NormForward args, int given_lanes) {
  constexpr int kThreads = kForwardThreads<kLanes>;
  constexpr int kPacks = kElements / kWidth;
  constexpr int kUnroll = kWidth == 1 ? 1 : kPacks;
  __shared__ float shared[2][kThreads / 32];
  const int lanes = kLanes > 0 ? kLanes : given_lanes;
  const int lane = threadIdx.x & (lanes - 1);
  const int64_t row = int64_t{blockIdx.x} * (kThreads / lanes) + threadIdx.x / lanes;
  const int columns = static_cast<int>(args.columns);
  const int64_t begin = row * columns;
  const bool live = row < args.rows;
  const int end = live ? columns : 0;
  const auto column_of = [&](int i) { return (i * lanes + lane) * kWidth; };

  Held<T, kWidth> x[kPacks];
#pragma unroll(kUnroll)
  for (int i = 0; i < kPacks; ++i) {
    if (column_of(i) < end) x[i].load_once(args.x, begin + column_of(i));
  }
  if (kWidth == 1 && args.residual != nullptr) {
#pragma unroll(1)
    for (int i = 0; i < kPacks; ++i) {
      if (column_of(i) >= end) continue;
      Held<T, kWidth> residual;
      residual.load_once(args.residual, begin + column_of(i));
      float sum[kWidth], added[kWidth];
      x[i].to_floats(sum);
      residual.to_floats(added);
      sum[0] += added[0];
      x[i].round_from(sum);
      x[i].store(args.sum, begin + column_of(i));
    }
  } else if (args.residual != nullptr) {
    constexpr int kAhead = kPacks % 4 == 0 ? 4 : kPacks;  // packs of the residual on their way
#pragma unroll
    for (int first = 0; first < kPacks; first += kAhead) {
      Held<T, kWidth> residual[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const int column = column_of(first + a);
        if (column < end) residual[a].load_once(args.residual, begin + column);
      }
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const int column = column_of(first + a);
        if (column >= end) continue;
        float sum[kWidth], added[kWidth];
        x[first + a].to_floats(sum);
        residual[a].to_floats(added);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) sum[j] += added[j];
        x[first + a].round_from(sum);
        x[first + a].store(args.sum, begin + column);
        x[first + a].forget();
      }
    }
  }

  float mean[1] = {0};
  if (kCentered) {
#pragma unroll(kUnroll)
    for (int i = 0; i < kPacks; ++i) {
      if (column_of(i) >= end) continue;
      float values[kWidth];
      x[i].to_floats(values);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) mean[0] += values[j];
      x[i].forget();
    }
    sum_over_row(mean, lanes, shared[0]);
    mean[0] /= static_cast<float>(columns);
  }
  float squares[1] = {0};
#pragma unroll(kUnroll)
  for (int i = 0; i < kPacks; ++i) {
    if (column_of(i) >= end) continue;
    float values[kWidth];
    x[i].to_floats(values);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float centered = values[j] - mean[0];
      squares[0] = fmaf(centered, centered, squares[0]);
    }
    x[i].forget();
  }
  sum_over_row(squares, lanes, shared[1]);
  const float rstd = rsqrtf(squares[0] / static_cast<float>(columns) + args.eps);
  if (!live) return;
  if (lane == 0) {
    args.rstd[row] = rstd;
    if (kCentered) args.mean[row] = mean[0];
  }
#pragma unroll(kUnroll)
  for (int i = 0; i < kPacks; ++i) {
    const int column = column_of(i);
    if (column >= end) continue;
    const bool biased = kCentered && args.bias != nullptr;
    Held<T, kWidth> held_weight, held_bias;
    held_weight.load(args.weight, column);
    if (biased) held_bias.load(args.bias, column);
    float values[kWidth], weight[kWidth], bias[kWidth];
    x[i].to_floats(values);
    held_weight.to_floats(weight);
    held_bias.to_floats(bias);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float normed = (values[j] - mean[0]) * rstd;
      values[j] = biased ? fmaf(normed, weight[j], bias[j]) : normed * weight[j];
    }
    x[i].round_from(values);
    x[i].store(args.y, begin + column);
  }
}

}  // namespace
}  // namespace shoal::models::ops::cuda
