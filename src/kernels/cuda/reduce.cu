// See reduce.h; the contract is kernels/reduce_reference.cpp.
#include "kernels/cuda/reduce.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/span.cuh"

namespace shoal::kernels::cuda {
namespace {

// Every source of an element is read before the element is written, by the same thread, so `out` may be a source.
template <DType source_dtype, DType out_dtype>
struct Mean {
  const void* sources[kMostSources];
  int source_count;
  void* out;
  float pre, post;
  bool accumulate;

  template <class A>
  __device__ void operator()(const A& access) const {
    float sum[kPack], next[kPack];
    load_floats<source_dtype>(access, sources[0], sum);
#pragma unroll
    for (int k = 0; k < kPack; ++k) sum[k] = __fmul_rn(pre, sum[k]);
#pragma unroll 4
    for (int source = 1; source < source_count; ++source) {
      load_floats<source_dtype>(access, sources[source], next);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum[k] = __fadd_rn(sum[k], __fmul_rn(pre, next[k]));
    }
#pragma unroll
    for (int k = 0; k < kPack; ++k) sum[k] = __fmul_rn(post, sum[k]);
    if (accumulate) {
      load_floats<out_dtype>(access, out, next);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum[k] = __fadd_rn(next[k], sum[k]);
    }
    store_floats<out_dtype>(access, out, sum);
  }
};

template <DType source_dtype, DType out_dtype>
void launch_mean(const OrderedMean& args, Stream stream) {
  AlignmentFinder finder;
  Mean<source_dtype, out_dtype> mean{};
  for (int k = 0; k < args.source_count; ++k) {
    mean.sources[k] = args.sources[k];
    finder.add(args.sources[k], nbytes_of(source_dtype));
    SHOAL_CHECK(args.sources[k] != args.out || source_dtype == out_dtype, "({} to {} in place)", name_of(source_dtype),
                name_of(out_dtype));
  }
  finder.add(args.out, nbytes_of(out_dtype));
  mean.source_count = args.source_count;
  mean.out = args.out;
  mean.pre = args.pre;
  mean.post = args.post;
  mean.accumulate = args.accumulate;
  launch_span(mean, args.numel, finder.found(), stream_of(stream));
  check_launch("ordered_mean");
}

template <DType source_dtype>
void mean_by_out(const OrderedMean& args, Stream stream) {
  switch (args.out_dtype) {
    case DType::f32: return launch_mean<source_dtype, DType::f32>(args, stream);
    case DType::bf16: return launch_mean<source_dtype, DType::bf16>(args, stream);
    case DType::f16: return launch_mean<source_dtype, DType::f16>(args, stream);
  }
}

// [Note: a norm block on eight threads]
// The contract makes eight chains of 512 additions of a block, so a block has eight threads, and a warp four blocks.
// The threads bring a tile of their block to shared memory as it lies in device memory, 16 bytes a thread and access,
// and then each reads the elements of its own chain. While they add, the next tile is on its way in registers.
// A square of an fp32 value is exact in fp64: the fused multiply-add rounds once, as the addition of the contract does.
// Elements past the end count as zero, which changes no sum: a sum of squares is never -0.
constexpr int kLanes = 8;
constexpr int kTileVectors = 4;  // of 16 bytes, a thread and tile
constexpr int kSquareThreads = 64;
constexpr int kSquareGroups = kSquareThreads / kLanes;  // norm blocks of a thread block

template <DType dtype>
struct Tile {
  using T = typename Bits<dtype>::Type;
  static constexpr int kVectorNumel = 16 / sizeof(T);
  static constexpr int kNumel = kLanes * kTileVectors * kVectorNumel;
  // A row of eight elements of padding: the four blocks of a warp then lie in different banks.
  static constexpr int kPitch = kNumel + kLanes;

  uint4 vectors[kTileVectors];

  // The tile at element `begin` of what ends at `end`.
  template <bool kAligned>
  __device__ void load(const T* values, int64_t begin, int64_t end, int lane) {
#pragma unroll
    for (int v = 0; v < kTileVectors; ++v) {
      const int64_t at = begin + (v * kLanes + lane) * kVectorNumel;
      if (kAligned && at + kVectorNumel <= end) {
        vectors[v] = *reinterpret_cast<const uint4*>(values + at);
      } else {
        T elements[kVectorNumel];
#pragma unroll
        for (int k = 0; k < kVectorNumel; ++k) elements[k] = at + k < end ? values[at + k] : T{};
        __builtin_memcpy(&vectors[v], elements, sizeof elements);
      }
    }
  }
  __device__ void store(T* shared, int lane) const {
#pragma unroll
    for (int v = 0; v < kTileVectors; ++v) reinterpret_cast<uint4*>(shared)[v * kLanes + lane] = vectors[v];
  }
};

template <DType dtype, bool kAligned>
__global__ void __launch_bounds__(kSquareThreads) squares_kernel(const void* memory, int64_t numel, double* sums) {
  using T = typename Bits<dtype>::Type;
  using TileOf = Tile<dtype>;
  static_assert(kNormBlock % TileOf::kNumel == 0, "a norm block is whole tiles");
  __shared__ alignas(16) T shared[kSquareGroups * TileOf::kPitch];
  const T* values = static_cast<const T*>(memory);
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  const int64_t block = static_cast<int64_t>(blockIdx.x) * kSquareGroups + group;
  const int64_t begin = block * kNormBlock;
  T* staged = shared + group * TileOf::kPitch;

  // A block past the end loads and adds zeros: the threads of a warp stay together.
  TileOf tile;
  tile.template load<kAligned>(values, begin, numel, lane);
  double sum = 0;
  for (int done = 0; done < kNormBlock; done += TileOf::kNumel) {
    tile.store(staged, lane);
    __syncwarp();  // the group waits until its tile is complete
    if (done + TileOf::kNumel < kNormBlock) {
      tile.template load<kAligned>(values, begin + done + TileOf::kNumel, numel, lane);
    }
#pragma unroll
    for (int row = 0; row < TileOf::kNumel; row += kLanes) {
      const double x = to_float<dtype>(staged[row + lane]);
      sum = __fma_rn(x, x, sum);
    }
    __syncwarp();  // the next tile waits until this one is read
  }

  double total = __shfl_sync(0xffffffffu, sum, 0, kLanes);
#pragma unroll
  for (int j = 1; j < kLanes; ++j) total = __dadd_rn(total, __shfl_sync(0xffffffffu, sum, j, kLanes));
  if (lane == 0 && begin < numel) sums[block] = total;
}

template <DType dtype>
void launch_squares(const void* values, int64_t numel, double* sums, cudaStream_t stream) {
  const int64_t blocks = (numel + kNormBlock - 1) / kNormBlock;
  const auto grid = static_cast<unsigned>((blocks + kSquareGroups - 1) / kSquareGroups);
  if (reinterpret_cast<uintptr_t>(values) % 16 == 0) {
    squares_kernel<dtype, true><<<grid, kSquareThreads, 0, stream>>>(values, numel, sums);
  } else {
    squares_kernel<dtype, false><<<grid, kSquareThreads, 0, stream>>>(values, numel, sums);
  }
}

// One thread adds, since the order leaves no choice; all others keep it fed, one tile ahead.
constexpr int kSumThreads = 256;
constexpr int kSumTile = 2048;

__global__ void __launch_bounds__(kSumThreads) sum_kernel(const SumRun* runs) {
  __shared__ alignas(16) double tiles[2][kSumTile];
  const SumRun run = runs[blockIdx.x];
  const int thread = static_cast<int>(threadIdx.x);
  const auto bring = [&](int64_t begin, double* tile) {
#pragma unroll
    for (int k = 0; k < kSumTile; k += kSumThreads) {
      const int64_t i = begin + k + thread;
      if (i < run.count) tile[k + thread] = run.values[i];
    }
  };
  double sum = 0.0;
  bring(0, tiles[0]);
  int current = 0;
  for (int64_t begin = 0; begin < run.count; begin += kSumTile, current ^= 1) {
    __syncthreads();  // the adding thread waits for its tile, the others until the tile before is read
    bring(begin + kSumTile, tiles[current ^ 1]);
    if (thread == 0) {
      const double* tile = tiles[current];
      const int64_t left = run.count - begin;
      if (left >= kSumTile) {
#pragma unroll 32
        for (int k = 0; k < kSumTile; ++k) sum = __dadd_rn(sum, tile[k]);
      } else {
        for (int k = 0; k < static_cast<int>(left); ++k) sum = __dadd_rn(sum, tile[k]);
      }
    }
  }
  if (thread == 0) *run.sum = sum;
}

}  // namespace

void ordered_mean(const OrderedMean& args, Stream stream) {
  SHOAL_CHECK_GE(args.numel, 0);
  SHOAL_CHECK_GE(args.source_count, 1);
  SHOAL_CHECK_LE(args.source_count, kMostSources);
  if (args.numel == 0) return;
  switch (args.source_dtype) {
    case DType::f32: return mean_by_out<DType::f32>(args, stream);
    case DType::bf16: return mean_by_out<DType::bf16>(args, stream);
    case DType::f16: return mean_by_out<DType::f16>(args, stream);
  }
}

void sum_squares(const void* values, DType dtype, int64_t numel, double* sums, Stream stream) {
  SHOAL_CHECK_GE(numel, 0);
  if (numel == 0) return;
  check_element_alignment(values, nbytes_of(dtype));
  switch (dtype) {
    case DType::f32: launch_squares<DType::f32>(values, numel, sums, stream_of(stream)); break;
    case DType::bf16: launch_squares<DType::bf16>(values, numel, sums, stream_of(stream)); break;
    case DType::f16: launch_squares<DType::f16>(values, numel, sums, stream_of(stream)); break;
  }
  check_launch("sum_squares");
}

void sum_in_order(const SumRun* runs, int run_count, Stream stream) {
  SHOAL_CHECK_GE(run_count, 0);
  if (run_count == 0) return;
  sum_kernel<<<static_cast<unsigned>(run_count), kSumThreads, 0, stream_of(stream)>>>(runs);
  check_launch("sum_in_order");
}

}  // namespace shoal::kernels::cuda
