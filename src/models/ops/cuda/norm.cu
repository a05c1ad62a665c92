// See norm.h. Here the shape of a launch is chosen; the kernels stand in norm_forward.cuh and norm_backward.cuh.
#include "models/ops/cuda/norm.h"

#include <algorithm>

#include "models/ops/cuda/norm_backward.cuh"
#include "models/ops/cuda/norm_forward.cuh"

namespace shoal::models::ops::cuda {

namespace {

int power_of_two_from(int64_t least) {
  int power = 1;
  while (power < least) power *= 2;
  return power;
}

constexpr int64_t kFewColumns = 4096;
// Lines of partial sums, one a block: a constant, so that the sums do not depend on the machine. A block has a
// processor to itself, and an H200 has 132.
constexpr int64_t kMostLines = 132;

int backward_threads(int64_t columns) { return columns <= kFewColumns ? kFewThreads : kManyThreads; }
int backward_lanes(int64_t columns) {
  const int threads = backward_threads(columns);
  return threads == kFewThreads ? power_of_two_from((columns + kBackwardElements - 1) / kBackwardElements) : threads;
}
int64_t lines_for(int64_t rows, int64_t columns) {
  const int threads = backward_threads(columns);
  const int64_t groups = threads / backward_lanes(columns);
  return std::min<int64_t>(kMostLines, (rows + groups - 1) / groups);
}

void check_columns(int64_t columns) {
  if (columns <= kMostNormColumns) return;
  throw Error("cuda norm", "rows of " + std::to_string(columns) + " elements are longer than " +
                               std::to_string(kMostNormColumns) + ", the most that the fused norm takes.");
}

template <typename T>
bool takes_packs(int64_t columns, bool aligned) {
  return aligned && columns % kWidest<T> == 0;
}

template <bool kCentered, typename T, int kWidth, int kElements, int kLanes>
void launch_forward(const NormForward& args, int lanes, Stream stream) {
  constexpr int kThreads = kForwardThreads<kLanes>;
  const unsigned blocks = blocks_for(args.rows, kThreads / lanes);
  norm_forward<T, kWidth, kElements, kLanes, kCentered><<<blocks, kThreads, 0, stream_of(stream)>>>(args, lanes);
}

template <bool kCentered>
void run_forward(const NormForward& args, Stream stream) {
  check_columns(args.columns);
  if (args.rows == 0 || args.columns == 0) return;
  const bool aligned = all_aligned(args.x, args.residual, args.sum, args.weight, args.bias, args.y);
  const int64_t columns = args.columns;
  with_type(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    constexpr int kWidth = kWidest<T>;
    const int lanes = power_of_two_from((columns + 15) / 16);
    if (!takes_packs<T>(columns, aligned)) {
      if (lanes <= 256) return launch_forward<kCentered, T, 1, 16, 0>(args, lanes, stream);
      return launch_forward<kCentered, T, 1, 64, 256>(args, 256, stream);
    }
    if (lanes <= 32) return launch_forward<kCentered, T, kWidth, 16, 0>(args, lanes, stream);
    if (lanes <= 128) return launch_forward<kCentered, T, kWidth, 64, 32>(args, 32, stream);
    if (lanes <= 256) return launch_forward<kCentered, T, kWidth, 128, 32>(args, 32, stream);
    if (lanes <= 512) return launch_forward<kCentered, T, kWidth, 32, 256>(args, 256, stream);
    launch_forward<kCentered, T, kWidth, 64, 256>(args, 256, stream);
  });
  check_launch("norm_forward");
}

int most_shared_nbytes() {
  int device = 0, most = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "cudaDeviceGetAttribute");
  return most;
}

template <bool kCentered, typename T, int kWidth, int kThreads, int kDepth = kRingDepth<T, kThreads>>
void launch_backward(const NormBackward& args, int64_t lines, Stream stream) {
  const auto kernel = norm_backward<T, kWidth, kThreads, kDepth, kCentered>;
  constexpr int kRowNbytes = kThreads * kBackwardElements * static_cast<int>(sizeof(T));
  const int nbytes = std::max(kRowNbytes * kDepth * (args.dsum != nullptr ? 3 : 2), kSumNbytes<kWidth, kThreads>);
  constexpr int kStaticNbytes = 1024;      // of the kernel, at most
  constexpr int kLeastShared = 99 * 1024;  // of a block, on any GPU from compute capability 8.0 on
  if constexpr (kDepth > 1 || (kDepth == 1 && kRowNbytes * 3 + kStaticNbytes > kLeastShared)) {
    const int most = args.block_shared > 0 ? args.block_shared : most_shared_nbytes();
    if (nbytes + kStaticNbytes > most) {
      constexpr int kNext = kDepth == 1 ? 0 : 1;
      return launch_backward<kCentered, T, kWidth, kThreads, kNext>(args, lines, stream);
    }
  }
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, nbytes), "cudaFuncSetAttribute");
  kernel<<<static_cast<unsigned>(lines), kThreads, static_cast<size_t>(nbytes), stream_of(stream)>>>(
      args, backward_lanes(args.columns));
}

template <bool kCentered>
void run_backward(const NormBackward& args, Stream stream) {
  check_columns(args.columns);
  if (args.columns == 0) return;
  const int64_t lines = lines_for(args.rows, args.columns);
  const bool aligned = all_aligned(args.x, args.weight, args.dy, args.dsum, args.dx);
  const bool few = backward_threads(args.columns) == kFewThreads;
  const int64_t line_numel = args.columns * (kCentered && args.dbias != nullptr ? 2 : 1);
  with_type(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    constexpr int kWidth = kWidest<T>;
    if (args.rows > 0) {
      if (takes_packs<T>(args.columns, aligned)) {
        if (few) {
          launch_backward<kCentered, T, kWidth, kFewThreads>(args, lines, stream);
        } else {
          launch_backward<kCentered, T, kWidth, kManyThreads>(args, lines, stream);
        }
      } else if (few) {
        launch_backward<kCentered, T, 1, kFewThreads>(args, lines, stream);
      } else {
        launch_backward<kCentered, T, 1, kManyThreads>(args, lines, stream);
      }
      check_launch("norm_backward");
    }
    launch_early(sum_lines<T>, "sum_lines", dim3(blocks_for(line_numel, kSumColumns)), dim3(kSumColumns, kSumRows),
                 stream, args.partials, static_cast<int>(lines), line_numel, args.columns, args.dweight, args.dbias);
  });
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

}  // namespace shoal::models::ops::cuda
