// See reduce.h; the contract is kernels/reduce_reference.cpp.
#include "kernels/cuda/reduce.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/span.cuh"

namespace shoal::kernels::cuda {
namespace {

// Rounds a sum, and stores it where the fold ends.
template <DType out_dtype, DType rounding, class A>
__device__ inline void store_scaled(const A& access, void* out, float (&sum)[kPack], float post) {
#pragma unroll
  for (int k = 0; k < kPack; ++k) {
    sum[k] = __fmul_rn(post, sum[k]);
    if constexpr (out_dtype != rounding) sum[k] = to_float<rounding>(from_float<rounding>(sum[k]));
  }
  store_floats<out_dtype>(access, out, sum);
}

// Every source of an element is read before the element is written, by the same thread, so `out` may be a source.
template <DType source_dtype, DType out_dtype, DType rounding>
struct Fold {
  const void* sources[kMostSources];
  int source_count;
  void* out;
  float carry, post;

  template <class A>
  __device__ void operator()(const A& access) const {
    float sum[kPack], next[kPack];
    int source = 0;
    if (carry == 0) {
      load_floats<source_dtype>(access, sources[0], sum);
      source = 1;
    } else {
      load_floats<out_dtype>(access, out, sum);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum[k] = __fmul_rn(carry, sum[k]);
    }
#pragma unroll 4
    for (; source < source_count; ++source) {
      load_floats<source_dtype>(access, sources[source], next);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum[k] = __fadd_rn(sum[k], next[k]);
    }
    store_scaled<out_dtype, rounding>(access, out, sum, post);
  }
};

// The same by groups.
template <DType source_dtype, DType out_dtype, DType rounding>
struct FoldGroups {
  Fold<source_dtype, out_dtype, rounding> fold;
  int64_t group, before;
  float* open;
  bool closes;

  template <class A>
  __device__ void operator()(const A& access) const {
    float sum[kPack], in_group[kPack], next[kPack];
    bool has_sum = fold.carry != 0, has_open = before > 0;
    if (has_sum) {
      load_floats<out_dtype>(access, fold.out, sum);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum[k] = __fmul_rn(fold.carry, sum[k]);
    }
    if (has_open) load_floats<DType::f32>(access, open, in_group);
    int64_t count = before;
    for (int source = 0; source < fold.source_count; ++source) {
      load_floats<source_dtype>(access, fold.sources[source], next);
#pragma unroll
      for (int k = 0; k < kPack; ++k) in_group[k] = has_open ? __fadd_rn(in_group[k], next[k]) : next[k];
      has_open = true;
      if (++count < group && !(closes && source + 1 == fold.source_count)) continue;
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum[k] = has_sum ? __fadd_rn(sum[k], in_group[k]) : in_group[k];
      has_sum = true;
      has_open = false;
      count = 0;
    }
    if (has_open) store_floats<DType::f32>(access, open, in_group);
    if (has_sum) store_scaled<out_dtype, rounding>(access, fold.out, sum, fold.post);
  }
};

template <DType source_dtype, DType out_dtype, DType rounding>
void launch_fold(const OrderedFold& args, Stream stream) {
  AlignmentFinder finder;
  Fold<source_dtype, out_dtype, rounding> fold{};
  for (int k = 0; k < args.source_count; ++k) {
    fold.sources[k] = args.sources[k];
    finder.add(args.sources[k], nbytes_of(source_dtype));
    SHOAL_CHECK(args.sources[k] != args.out || source_dtype == out_dtype, "({} to {} in place)", name_of(source_dtype),
                name_of(out_dtype));
  }
  finder.add(args.out, nbytes_of(out_dtype));
  fold.source_count = args.source_count;
  fold.out = args.out;
  fold.carry = args.carry;
  fold.post = args.post;
  if (args.group == 0) {
    launch_span(fold, args.numel, finder.found(), stream_of(stream));
  } else {
    finder.add(args.open, sizeof(float));
    const FoldGroups<source_dtype, out_dtype, rounding> groups{fold, args.group, args.before, args.open, args.closes};
    launch_span(groups, args.numel, finder.found(), stream_of(stream));
  }
  check_launch("ordered_fold");
}

template <DType source_dtype>
void fold_by_out(const OrderedFold& args, Stream stream) {
  switch (args.rounding) {
    case DType::f32: return launch_fold<source_dtype, DType::f32, DType::f32>(args, stream);
    case DType::bf16:
      if (args.out_dtype == DType::f32) return launch_fold<source_dtype, DType::f32, DType::bf16>(args, stream);
      return launch_fold<source_dtype, DType::bf16, DType::bf16>(args, stream);
    case DType::f16:
      if (args.out_dtype == DType::f32) return launch_fold<source_dtype, DType::f32, DType::f16>(args, stream);
      return launch_fold<source_dtype, DType::f16, DType::f16>(args, stream);
  }
}

// [Note: a norm block on eight threads]
// The contract makes eight chains of additions of a run, so a block of the norm has eight threads, and a warp four
// blocks. The threads bring a tile of their block to shared memory as it lies in device memory, 16 bytes a thread and
// access, and then each reads the elements of its own chain. While they add, the next tile is on its way in registers.
// After eight runs the threads add their lanes by halves, each time for half of the runs, so that seven exchanges leave
// thread j with run j; three more add the eight runs. A block that the range covers in part has its runs in shared
// memory, and one thread makes pieces of them: there are two such blocks at most.
// A square of an fp32 value is exact in fp64: the fused multiply-add rounds once, as the addition of the contract does.
// Elements before the begin and past the end count as zero, which changes no sum: a sum of squares is never -0.
constexpr int kLanes = 8;
constexpr int kTileVectors = 4;  // of 16 bytes, a thread and tile
constexpr int kSquareThreads = 64;
constexpr int kSquareGroups = kSquareThreads / kLanes;  // norm blocks of a thread block
constexpr unsigned kAllThreads = 0xffffffffu;

template <DType dtype>
struct Tile {
  using T = typename Bits<dtype>::Type;
  static constexpr int kVectorNumel = 16 / sizeof(T);
  static constexpr int kNumel = kLanes * kTileVectors * kVectorNumel;
  // A row of eight elements of padding: the four blocks of a warp then lie in different banks.
  static constexpr int kPitch = kNumel + kLanes;

  uint4 vectors[kTileVectors];

  // The tile at element `begin`, which may be negative, of what ends at `end`.
  template <bool kAligned>
  __device__ void load(const T* values, int64_t begin, int64_t end, int lane) {
#pragma unroll
    for (int v = 0; v < kTileVectors; ++v) {
      const int64_t at = begin + (v * kLanes + lane) * kVectorNumel;
      if (kAligned && at >= 0 && at + kVectorNumel <= end) {
        vectors[v] = *reinterpret_cast<const uint4*>(values + at);
      } else {
        T elements[kVectorNumel];
#pragma unroll
        for (int k = 0; k < kVectorNumel; ++k) elements[k] = at + k >= 0 && at + k < end ? values[at + k] : T{};
        __builtin_memcpy(&vectors[v], elements, sizeof elements);
      }
    }
  }
  __device__ void store(T* shared, int lane) const {
#pragma unroll
    for (int v = 0; v < kTileVectors; ++v) reinterpret_cast<uint4*>(shared)[v * kLanes + lane] = vectors[v];
  }
};

// Each thread of eight has its lane of eight runs, and gets the sum of the run of its number.
__device__ inline double add_lanes(double (&of_runs)[kLanes], int lane) {
#pragma unroll
  for (int half = kLanes / 2; half > 0; half /= 2) {
    const bool upper = (lane & half) != 0;
#pragma unroll
    for (int r = 0; r < half; ++r) {
      const double mine = upper ? of_runs[r + half] : of_runs[r];
      const double theirs = upper ? of_runs[r] : of_runs[r + half];
      of_runs[r] = __dadd_rn(mine, __shfl_xor_sync(kAllThreads, theirs, half));
    }
  }
  return of_runs[0];
}

// The node above the nodes of `count` neighbouring threads, a power of two; each of them gets it.
__device__ inline double add_threads(double node, int count) {
  for (int apart = 1; apart < count; apart *= 2) node = __dadd_rn(node, __shfl_xor_sync(kAllThreads, node, apart));
  return node;
}

struct Squares {
  const void* values;
  int64_t numel;
  int64_t first_run, end_run;
  int64_t first_pieces;  // of the first block
  double* pieces;
};

template <DType dtype, bool kAligned>
__global__ void __launch_bounds__(kSquareThreads) squares_kernel(const Squares a) {
  using T = typename Bits<dtype>::Type;
  using TileOf = Tile<dtype>;
  constexpr int kOctet = kLanes * static_cast<int>(kRunNumel);  // elements of eight runs
  constexpr int kTileRuns = TileOf::kNumel / static_cast<int>(kRunNumel);
  static_assert(kTileRuns * kRunNumel == TileOf::kNumel && kOctet % TileOf::kNumel == 0, "a tile is whole runs");
  static_assert(kNormBlock == 4 * kOctet, "a norm block is two pairs of eight runs");
  __shared__ alignas(16) T shared[kSquareGroups * TileOf::kPitch];
  __shared__ double edge_runs[kSquareGroups][kBlockRuns];
  const T* values = static_cast<const T*>(a.values);
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  const int64_t number = static_cast<int64_t>(blockIdx.x) * kSquareGroups + group;  // from the first block on
  const int64_t block_run = (a.first_run / kBlockRuns + number) * kBlockRuns;
  const int64_t begin = (block_run - a.first_run) * kRunNumel;
  const bool is_edge = block_run < a.first_run || block_run + kBlockRuns > a.end_run;
  T* staged = shared + group * TileOf::kPitch;

  // A block past the end loads and adds zeros: the threads of a warp stay together.
  TileOf tile;
  tile.template load<kAligned>(values, begin, a.numel, lane);
  double left = 0, first_pair = 0, total = 0;
  for (int octet = 0; octet < 4; ++octet) {
    double of_runs[kLanes];
#pragma unroll
    for (int at = 0; at < kOctet; at += TileOf::kNumel) {
      tile.store(staged, lane);
      __syncwarp();  // the group waits until its tile is complete
      const int next = octet * kOctet + at + TileOf::kNumel;
      if (next < kNormBlock) tile.template load<kAligned>(values, begin + next, a.numel, lane);
#pragma unroll
      for (int run = 0; run < kTileRuns; ++run) {
        double sum = 0;
#pragma unroll
        for (int row = 0; row < kRunNumel; row += kLanes) {
          const double x = to_float<dtype>(staged[run * kRunNumel + row + lane]);
          sum = __fma_rn(x, x, sum);
        }
        of_runs[at / kRunNumel + run] = sum;
      }
      __syncwarp();  // the next tile waits until this one is read
    }
    const double run_sum = add_lanes(of_runs, lane);
    if (is_edge) edge_runs[group][octet * kLanes + lane] = run_sum;
    const double node = add_threads(run_sum, kLanes);
    if (octet % 2 == 0) {
      left = node;
    } else if (octet == 1) {
      first_pair = __dadd_rn(left, node);
    } else {
      total = __dadd_rn(first_pair, __dadd_rn(left, node));
    }
  }
  __syncwarp();  // the thread that writes waits for the runs of an edge
  if (lane != 0 || block_run >= a.end_run) return;
  double* pieces = a.pieces + (number == 0 ? 0 : a.first_pieces + number - 1);
  if (!is_edge) {
    *pieces = total;
    return;
  }
  const int64_t from = block_run > a.first_run ? block_run : a.first_run;
  const int64_t to = block_run + kBlockRuns < a.end_run ? block_run + kBlockRuns : a.end_run;
  write_pieces(edge_runs[group] + (from - block_run), from, to, pieces);
}

template <DType dtype>
void launch_squares(const Squares& args, cudaStream_t stream) {
  const int64_t blocks = (args.end_run - 1) / kBlockRuns - args.first_run / kBlockRuns + 1;
  const auto grid = static_cast<unsigned>((blocks + kSquareGroups - 1) / kSquareGroups);
  if (reinterpret_cast<uintptr_t>(args.values) % 16 == 0) {
    squares_kernel<dtype, true><<<grid, kSquareThreads, 0, stream>>>(args);
  } else {
    squares_kernel<dtype, false><<<grid, kSquareThreads, 0, stream>>>(args);
  }
}

// [Note: pieces to tops]
// A block of threads has one range. It goes over the tops: one of few pieces is the work of a warp, one of many that of
// all warps, each on a part of it. A warp adds 32 neighbours by exchanges, several such in flight, and merges these
// nodes as they come.
constexpr int kTopThreads = 1024;
constexpr int kTopWarps = kTopThreads / 32;

template <int kLoads>
__device__ double warp_node_by(const double* nodes, int64_t count, int lane) {
  SumStack stack(0);
  for (int64_t at = 0; at < count; at += 32 * kLoads) {
    double sums[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k) sums[k] = nodes[at + 32 * k + lane];
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) {
#pragma unroll
      for (int k = 0; k < kLoads; ++k) sums[k] = __dadd_rn(sums[k], __shfl_xor_sync(kAllThreads, sums[k], apart));
    }
#pragma unroll
    for (int left = kLoads; left > 1; left /= 2) {
#pragma unroll
      for (int k = 0; k < left / 2; ++k) sums[k] = __dadd_rn(sums[2 * k], sums[2 * k + 1]);
    }
    stack.push(0, sums[0]);
  }
  return stack.root();
}

// The node above `count` nodes, a power of two.
__device__ inline double warp_node(const double* nodes, int64_t count, int lane) {
  if (count < 32) return add_threads(lane < count ? nodes[lane] : 0.0, static_cast<int>(count));
  if (count < 256) return warp_node_by<1>(nodes, count, lane);
  return warp_node_by<8>(nodes, count, lane);
}

__global__ void __launch_bounds__(kTopThreads) tops_kernel(const PieceSums* all) {
  __shared__ double of_warps[kTopWarps];
  const PieceSums a = all[blockIdx.x];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const double* pieces = a.pieces;
  int64_t run = a.begin;
  for (int top = 0; run < a.end; ++top) {
    const int level = node_level(run, a.end, kMostLevel);
    const int64_t count = level > kBlockLevel ? int64_t{1} << (level - kBlockLevel) : 1;
    if (count < 32 * kTopWarps) {
      if (warp == top % kTopWarps) {
        const double sum = warp_node(pieces, count, lane);
        if (lane == 0) a.tops[top] = sum;
      }
    } else {
      const int64_t share = count / kTopWarps;
      const double sum = warp_node(pieces + warp * share, share, lane);
      if (lane == 0) of_warps[warp] = sum;
      __syncthreads();  // the first warp waits for all parts
      if (warp == 0) {
        const double whole = add_threads(of_warps[lane], kTopWarps);
        if (lane == 0) a.tops[top] = whole;
      }
      __syncthreads();  // the next top waits until the parts are read
    }
    pieces += count;
    run += int64_t{1} << level;
  }
}

}  // namespace

void ordered_fold(const OrderedFold& args, Stream stream) {
  check(args);
  SHOAL_CHECK_LE(args.source_count, kMostSources);
  if (args.numel == 0) return;
  switch (args.source_dtype) {
    case DType::f32: return fold_by_out<DType::f32>(args, stream);
    case DType::bf16: return fold_by_out<DType::bf16>(args, stream);
    case DType::f16: return fold_by_out<DType::f16>(args, stream);
  }
}

void sum_squares(const void* values, DType dtype, int64_t numel, int64_t first_run, double* pieces, Stream stream) {
  SHOAL_CHECK_GE(numel, 0);
  SHOAL_CHECK_GE(first_run, 0);
  if (numel == 0) return;
  check_element_alignment(values, nbytes_of(dtype));
  const int64_t end_run = first_run + runs_of(numel), block_end = (first_run / kBlockRuns + 1) * kBlockRuns;
  const int64_t first_pieces = piece_count(first_run, end_run < block_end ? end_run : block_end);
  const Squares args{values, numel, first_run, end_run, first_pieces, pieces};
  switch (dtype) {
    case DType::f32: launch_squares<DType::f32>(args, stream_of(stream)); break;
    case DType::bf16: launch_squares<DType::bf16>(args, stream_of(stream)); break;
    case DType::f16: launch_squares<DType::f16>(args, stream_of(stream)); break;
  }
  check_launch("sum_squares");
}

void sum_pieces(const PieceSums* ranges, int range_count, Stream stream) {
  SHOAL_CHECK_GE(range_count, 0);
  if (range_count == 0) return;
  tops_kernel<<<static_cast<unsigned>(range_count), kTopThreads, 0, stream_of(stream)>>>(ranges);
  check_launch("sum_pieces");
}

}  // namespace shoal::kernels::cuda
