// See norm.h.
//
// [Note: how a row is spread]
// A block has 256 threads. A row belongs to `lanes` of them, a power of two, and each holds kElements of its elements
// in registers, so a row is read once. Rows of up to 4096 elements share a block; longer ones have a block each and
// more elements a thread. The weights' gradient is summed in two stages of fixed order: each block adds up its rows and
// writes one line of partial sums, then the lines are added.
#include "kernels/cuda/norm.h"

#include <algorithm>

#include "kernels/cuda/pack.cuh"

namespace shoal::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kShortElements = 16;  // a thread, for rows that may share a block

// Blocks that a processor is to hold, so that the compiler keeps the registers below its share.
constexpr int blocks_a_processor(int elements) { return 64 / elements; }
// The number of lines of partial sums is a constant, so that the sums do not depend on the machine.
constexpr int64_t kMostLines = 528;  // four a processor of an H100 or H200

int lanes_for(int64_t columns, int elements) {
  if (elements > kShortElements) return kThreads;
  int lanes = 1;
  while (lanes * elements < columns) lanes *= 2;
  return lanes;
}
int elements_for(int64_t columns) {
  if (columns <= int64_t{kThreads} * kShortElements) return kShortElements;
  return columns <= int64_t{kThreads} * 32 ? 32 : 64;
}
int64_t lines_for(int64_t rows, int64_t columns) {
  const int groups = kThreads / lanes_for(columns, elements_for(columns));
  return std::min(kMostLines, (rows + groups - 1) / groups);
}

// Each of `values` summed over the lanes of a row, the same bits in every lane. `shared` may be used again two calls
// later.
template <int kSums>
__device__ __forceinline__ void sum_over_row(float (&values)[kSums], int lanes, float* shared) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    if (offset >= lanes) continue;
#pragma unroll
    for (int s = 0; s < kSums; ++s) values[s] += __shfl_xor_sync(0xffffffffu, values[s], offset);
  }
  if (lanes <= 32) return;
  const int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) {
#pragma unroll
    for (int s = 0; s < kSums; ++s) shared[s * kWarps + warp] = values[s];
  }
  __syncthreads();
  const int first = threadIdx.x / lanes * (lanes / 32);
#pragma unroll
  for (int s = 0; s < kSums; ++s) values[s] = 0;
  for (int w = first; w < first + lanes / 32; ++w) {
#pragma unroll
    for (int s = 0; s < kSums; ++s) values[s] += shared[s * kWarps + w];
  }
}

template <typename T, int kWidth, int kElements, bool kCentered>
__global__ void __launch_bounds__(kThreads) norm_forward(NormForward args, int lanes) {
  constexpr int kPacks = kElements / kWidth;
  __shared__ float shared[2][kWarps];
  const int lane = threadIdx.x & (lanes - 1);
  const int64_t row = int64_t{blockIdx.x} * (kThreads / lanes) + threadIdx.x / lanes;
  const int columns = static_cast<int>(args.columns);
  const int64_t begin = row * columns;
  const bool live = row < args.rows;

  float x[kElements];
  Pack<T, kWidth> weight[kPacks];
#pragma unroll(kWidth == 1 ? 1 : kPacks)
  for (int i = 0; i < kPacks; ++i) {
    const int column = (i * lanes + lane) * kWidth;
    if (live && column < columns) {
      Pack<T, kWidth> pack = load_pack<T, kWidth>(args.x, begin + column);
      weight[i] = load_pack<T, kWidth>(args.weight, column);
      if (args.residual != nullptr) {
        const Pack<T, kWidth> residual = load_pack<T, kWidth>(args.residual, begin + column);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          pack.values[j] = from_float<T>(to_float(pack.values[j]) + to_float(residual.values[j]));
        }
        store_pack(args.sum, begin + column, pack);
      }
#pragma unroll
      for (int j = 0; j < kWidth; ++j) x[i * kWidth + j] = to_float(pack.values[j]);
    } else {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) x[i * kWidth + j] = 0;
    }
  }

  float mean[1] = {0};
  if (kCentered) {
#pragma unroll(kWidth == 1 ? 1 : kElements)
    for (int e = 0; e < kElements; ++e) mean[0] += x[e];
    sum_over_row(mean, lanes, shared[0]);
    mean[0] /= static_cast<float>(columns);
  }
  float squares[1] = {0};
#pragma unroll(kWidth == 1 ? 1 : kPacks)
  for (int i = 0; i < kPacks; ++i) {
    if ((i * lanes + lane) * kWidth >= columns) continue;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float centered = x[i * kWidth + j] - mean[0];
      squares[0] = fmaf(centered, centered, squares[0]);
    }
  }
  sum_over_row(squares, lanes, shared[1]);
  const float rstd = rsqrtf(squares[0] / static_cast<float>(columns) + args.eps);
  if (!live) return;
  if (lane == 0) {
    args.rstd[row] = rstd;
    if (kCentered) args.mean[row] = mean[0];
  }
#pragma unroll(kWidth == 1 ? 1 : kPacks)
  for (int i = 0; i < kPacks; ++i) {
    const int column = (i * lanes + lane) * kWidth;
    if (column >= columns) continue;
    Pack<T, kWidth> bias;
    if (kCentered && args.bias != nullptr) bias = load_pack<T, kWidth>(args.bias, column);
    Pack<T, kWidth> y;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float normed = (x[i * kWidth + j] - mean[0]) * rstd;
      float scaled = normed * to_float(weight[i].values[j]);
      if (kCentered && args.bias != nullptr) scaled += to_float(bias.values[j]);
      y.values[j] = from_float<T>(scaled);
    }
    store_pack(args.y, begin + column, y);
  }
}

// One line of partial sums a block: [columns] of the weight, then as many of the bias where there is one. Until the end
// each thread's sums lie in shared memory, [weight, bias][element][thread], which costs less than registers here.
template <typename T, int kWidth, int kElements, bool kCentered>
__global__ void __launch_bounds__(kThreads, blocks_a_processor(kElements)) norm_backward(NormBackward args, int lanes) {
  constexpr int kPacks = kElements / kWidth;
  constexpr int kSums = kCentered ? 2 : 1;
  extern __shared__ float gradients[];
  __shared__ float shared[2][kSums * kWarps];
  const int group = threadIdx.x / lanes;
  const int lane = threadIdx.x & (lanes - 1);
  const int columns = static_cast<int>(args.columns);
  const float share = 1.0f / static_cast<float>(columns);
  float* dweight = gradients + threadIdx.x;
  float* dbias = dweight + kElements * kThreads;  // if kCentered
  for (int e = 0; e < kSums * kElements; ++e) dweight[e * kThreads] = 0;

  int turn = 0;
  const int groups = kThreads / lanes;
  for (int64_t first = int64_t{blockIdx.x} * groups; first < args.rows; first += int64_t{gridDim.x} * groups) {
    const int64_t row = first + group;
    const bool live = row < args.rows;
    const int64_t begin = row * columns;
    const float rstd = live ? args.rstd[row] : 0;
    const float mean = kCentered && live ? args.mean[row] : 0;
    Pack<T, kWidth> x[kPacks], dy[kPacks];
    float sums[kSums] = {};
#pragma unroll(kWidth == 1 ? 1 : kPacks)
    for (int i = 0; i < kPacks; ++i) {
      const int column = (i * lanes + lane) * kWidth;
      if (!live || column >= columns) continue;
      x[i] = load_pack<T, kWidth>(args.x, begin + column);
      dy[i] = load_pack<T, kWidth>(args.dy, begin + column);
    }
#pragma unroll(kWidth == 1 ? 1 : kPacks)
    for (int i = 0; i < kPacks; ++i) {
      const int column = (i * lanes + lane) * kWidth;
      if (!live || column >= columns) continue;
      const auto weight = load_pack<T, kWidth>(args.weight, column);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const float normed = (to_float(x[i].values[j]) - mean) * rstd;
        const float d = to_float(dy[i].values[j]);
        const float weighted = d * to_float(weight.values[j]);
        const int e = (i * kWidth + j) * kThreads;
        sums[0] = fmaf(weighted, normed, sums[0]);
        dweight[e] = fmaf(d, normed, dweight[e]);
        if (kCentered) {
          sums[kSums - 1] += weighted;
          dbias[e] += d;
        }
      }
    }
    sum_over_row(sums, lanes, shared[turn]);
    turn ^= 1;
#pragma unroll(kWidth == 1 ? 1 : kPacks)
    for (int i = 0; i < kPacks; ++i) {
      const int column = (i * lanes + lane) * kWidth;
      if (!live || column >= columns) continue;
      const auto weight = load_pack<T, kWidth>(args.weight, column);
      Pack<T, kWidth> added;
      if (args.dsum != nullptr) added = load_pack<T, kWidth>(args.dsum, begin + column);
      Pack<T, kWidth> dx;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const float normed = (to_float(x[i].values[j]) - mean) * rstd;
        float d = to_float(dy[i].values[j]) * to_float(weight.values[j]);
        d = fmaf(-normed, sums[0] * share, d);
        if (kCentered) d -= sums[kSums - 1] * share;
        d *= rstd;
        if (args.dsum != nullptr) d += to_float(added.values[j]);
        dx.values[j] = from_float<T>(d);
      }
      store_pack(args.dx, begin + column, dx);
    }
  }

  // The first group adds up what the groups have, in their order.
  __syncthreads();
  if (group != 0) return;
  const int parts = kCentered && args.dbias != nullptr ? 2 : 1;
  float* line = args.partials + int64_t{blockIdx.x} * columns * parts;
  for (int part = 0; part < parts; ++part) {
    for (int e = 0; e < kElements; ++e) {
      const int column = (e / kWidth * lanes + lane) * kWidth + e % kWidth;
      if (column >= columns) continue;
      float sum = 0;
      for (int g = 0; g < groups; ++g) sum += gradients[(part * kElements + e) * kThreads + g * lanes + lane];
      line[part * columns + column] = sum;
    }
  }
}

constexpr int kSumColumns = 32;
constexpr int kSumRows = 16;

// Adds the lines: each of 16 threads a column takes every 16th line, then the 16 are added in order.
template <typename T>
__global__ void __launch_bounds__(kSumColumns* kSumRows)
    sum_lines(const float* lines, int64_t line_count, int64_t line_numel, int64_t columns, void* weight, void* bias) {
  __shared__ float shared[kSumRows][kSumColumns];
  const int64_t index = int64_t{blockIdx.x} * kSumColumns + threadIdx.x;
  float sum = 0;
  if (index < line_numel) {
#pragma unroll 4
    for (int64_t line = threadIdx.y; line < line_count; line += kSumRows) sum += lines[line * line_numel + index];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || index >= line_numel) return;
  sum = 0;
  for (int y = 0; y < kSumRows; ++y) sum += shared[y][threadIdx.x];
  if (index < columns) {
    static_cast<T*>(weight)[index] = from_float<T>(sum);
  } else {
    static_cast<T*>(bias)[index - columns] = from_float<T>(sum);
  }
}

void check_columns(int64_t columns) {
  if (columns <= kMostNormColumns) return;
  throw Error("cuda norm", "rows of " + std::to_string(columns) + " elements are longer than " +
                               std::to_string(kMostNormColumns) + ", the most that the fused norm takes.");
}

// launch(Tag<T>, Number<width>, Number<elements>) for these rows.
template <typename Launch>
void with_shape(DType dtype, int64_t columns, bool aligned, const Launch& launch) {
  with_type(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const int elements = elements_for(columns);
    if (aligned && columns % kWidest<T> == 0) {
      if (elements == kShortElements) return launch(tag, Number<kWidest<T>>(), Number<kShortElements>());
      if (elements == 32) return launch(tag, Number<kWidest<T>>(), Number<32>());
      return launch(tag, Number<kWidest<T>>(), Number<64>());
    }
    if (elements == kShortElements) return launch(tag, Number<1>(), Number<kShortElements>());
    launch(tag, Number<1>(), Number<64>());
  });
}

template <bool kCentered>
void run_forward(const NormForward& args, Stream stream) {
  check_columns(args.columns);
  if (args.rows == 0 || args.columns == 0) return;
  const bool aligned = all_aligned(args.x, args.residual, args.sum, args.weight, args.bias, args.y);
  with_shape(args.dtype, args.columns, aligned, [&](auto tag, auto width, auto elements) {
    using T = typename decltype(tag)::Type;
    constexpr int kElements = decltype(elements)::value;
    const int lanes = lanes_for(args.columns, kElements);
    const unsigned blocks = blocks_for(args.rows, kThreads / lanes);
    norm_forward<T, decltype(width)::value, kElements, kCentered>
        <<<blocks, kThreads, 0, stream_of(stream)>>>(args, lanes);
  });
  check_launch("norm_forward");
}

template <bool kCentered>
void run_backward(const NormBackward& args, Stream stream) {
  check_columns(args.columns);
  if (args.columns == 0) return;
  const int64_t line_count = lines_for(args.rows, args.columns);
  const bool aligned = all_aligned(args.x, args.weight, args.dy, args.dsum, args.dx);
  if (args.rows > 0) {
    with_shape(args.dtype, args.columns, aligned, [&](auto tag, auto width, auto elements) {
      using T = typename decltype(tag)::Type;
      constexpr int kElements = decltype(elements)::value;
      constexpr int kNbytes = (kCentered ? 2 : 1) * kElements * kThreads * static_cast<int>(sizeof(float));
      const auto kernel = norm_backward<T, decltype(width)::value, kElements, kCentered>;
      if (kNbytes > 48 * 1024) {
        check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kNbytes),
                   "cudaFuncSetAttribute");
      }
      const int lanes = lanes_for(args.columns, kElements);
      kernel<<<static_cast<unsigned>(line_count), kThreads, kNbytes, stream_of(stream)>>>(args, lanes);
    });
    check_launch("norm_backward");
  }
  const int64_t line_numel = args.columns * (kCentered && args.dbias != nullptr ? 2 : 1);
  with_type(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    sum_lines<T><<<blocks_for(line_numel, kSumColumns), dim3(kSumColumns, kSumRows), 0, stream_of(stream)>>>(
        args.partials, line_count, line_numel, args.columns, args.dweight, args.dbias);
  });
  check_launch("sum_lines");
}

}  // namespace

void rms_norm(const NormForward& args, Stream stream) { run_forward<false>(args, stream); }
void layer_norm(const NormForward& args, Stream stream) { run_forward<true>(args, stream); }
void rms_norm_backward(const NormBackward& args, Stream stream) { run_backward<false>(args, stream); }
void layer_norm_backward(const NormBackward& args, Stream stream) { run_backward<true>(args, stream); }

int64_t norm_partials_numel(int64_t rows, int64_t columns, bool with_bias) {
  check_columns(columns);
  return lines_for(rows, columns) * columns * (with_bias ? 2 : 1);
}

}  // namespace shoal::kernels::cuda
