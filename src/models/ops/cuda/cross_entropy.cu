// See cross_entropy.h.
//
// [Note: a row of logits is read once]
// A block takes row after row. Each of its threads copies its packs of a row into shared memory, as many as fit there,
// holds two more in registers, and reads the rest, of a very long row, twice. A first pass over them finds the row's
// maximum and the sum of exponentials; the second writes the gradient and starts the copy of the next row into the
// places it has read, so that reading and writing overlap. Groups of copies end in order: the first pass begins with
// what is there. A thread reads only what it copied itself.
#include "models/ops/cuda/cross_entropy.h"

#include <algorithm>

#include "models/ops/cuda/async_copy.cuh"
#include "models/ops/cuda/fast_math.cuh"
#include "models/ops/cuda/pack.cuh"

namespace shoal::models::ops::cuda {

namespace {

constexpr int kMostThreads = 1024;
constexpr int kGroups = 4;      // of copies under way
constexpr int kGroupPacks = 4;  // a thread and group
constexpr int kMostPlaces = kGroups * kGroupPacks;
constexpr int kHeldPacks = 2;

// Exponentials are powers of two of logits times log2(e); the maximum, rounded, is subtracted in the same operation.
constexpr float kLn2 = 0.69314718055994531f;

// A sum of powers of two, kept as sum * 2^top.
struct PowerSum {
  float top, sum;
};
// All lanes hold the same bits: each addition is symmetric.
__device__ __forceinline__ PowerSum join_warp(PowerSum mine) {
  PowerSum all = mine;
  for (int offset = 16; offset > 0; offset /= 2) {
    all.top = fmaxf(all.top, __shfl_xor_sync(0xffffffffu, all.top, offset));
  }
  all.sum = all.top == -INFINITY ? 0 : mine.sum * exp2_fast(mine.top - all.top);
  for (int offset = 16; offset > 0; offset /= 2) all.sum += __shfl_xor_sync(0xffffffffu, all.sum, offset);
  return all;
}
// `shared` may be used again two calls later.
__device__ __forceinline__ PowerSum join_block(PowerSum mine, PowerSum* shared) {
  mine = join_warp(mine);
  const unsigned lane = threadIdx.x % 32;
  if (lane == 0) shared[threadIdx.x / 32] = mine;
  __syncthreads();
  return join_warp(lane < blockDim.x / 32 ? shared[lane] : PowerSum{-INFINITY, 0});
}

// The largest of the first `count` of these packs, two elements of two bytes at a time.
template <typename T, int kWidth, int kPacks>
__device__ __forceinline__ float largest_of(const Held<T, kWidth> (&held)[kPacks], int count) {
  if constexpr (std::is_same_v<T, float>) {
    float most = -INFINITY;
#pragma unroll
    for (int a = 0; a < kPacks; ++a) {
      if (a >= count) continue;
      float values[kWidth];
      held[a].to_floats(values);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) most = fmaxf(most, values[j]);
    }
    return most;
  } else {
    using Two = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
    Two most;
    most.x = most.y = from_float<T>(-INFINITY);
#pragma unroll
    for (int a = 0; a < kPacks; ++a) {
      if (a >= count) continue;
      Two twos[4];
      static_assert(sizeof twos == sizeof held[a].words);
      __builtin_memcpy(twos, &held[a].words, sizeof twos);
#pragma unroll
      for (int w = 0; w < 4; ++w) most = __hmax2(most, twos[w]);
    }
    return fmaxf(to_float(most.x), to_float(most.y));
  }
}

// Adds the powers of the first `count` of these packs.
template <typename T, int kWidth, int kPacks>
__device__ __forceinline__ void add_powers(PowerSum& sum, Held<T, kWidth> (&held)[kPacks], int count) {
  const float most = largest_of(held, count);
  const float top = fmaxf(sum.top, most * kLog2E);
  if (top == -INFINITY) return;
  sum.sum *= exp2_fast(sum.top - top);
  sum.top = top;
#pragma unroll
  for (int a = 0; a < kPacks; ++a) {
    if (a >= count) continue;
    float values[kWidth];
    held[a].to_floats(values);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum.sum += exp2_fast(fmaf(values[j], kLog2E, -top));
    held[a].forget();
  }
}

// What a thread has of every row: packs thread, thread + threads, ..., `count` of them, the first `kept` of a row in
// shared memory, [place][thread].
template <typename T>
struct RowShare {
  static constexpr int kWidth = kWidest<T>;
  using Elements = Pack<T, kWidth>;

  Elements* places;
  int threads, thread, count, kept;
  int vocab, partial;  // the pack that holds the row's last logits and padding, or -1

  __device__ RowShare(const CrossEntropy& args, uint4* memory, int most_places)
      : places(reinterpret_cast<Elements*>(memory) + threadIdx.x),
        threads(static_cast<int>(blockDim.x)),
        thread(static_cast<int>(threadIdx.x)),
        vocab(static_cast<int>(args.vocab)) {
    const int packs = (vocab + kWidth - 1) / kWidth;
    count = thread < packs ? (packs - thread - 1) / threads + 1 : 0;
    kept = count < most_places ? count : most_places;
    partial = vocab % kWidth == 0 ? -1 : packs - 1;
  }
  __device__ __forceinline__ int pack_of(int k) const { return k * threads + thread; }

  // Starts the copy of a group of the row's packs; of none, past the last row.
  __device__ __forceinline__ void fetch(const T* row, bool exists, int group) const {
    if (exists) {
#pragma unroll
      for (int a = 0; a < kGroupPacks; ++a) {
        const int k = group * kGroupPacks + a;
        if (k < kept) copy_ahead(places + k * threads, row, int64_t{pack_of(k)} * kWidth);
      }
    }
    end_group();
  }
  // Padding becomes -infinity, which adds nothing.
  __device__ __forceinline__ void mask(Held<T, kWidth>& held, int k) const {
    if (pack_of(k) != partial) return;
    float values[kWidth];
    held.to_floats(values);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      if (partial * kWidth + j >= vocab) values[j] = -INFINITY;
    }
    held.round_from(values);
    held.forget();
  }
  __device__ __forceinline__ void read_group(Held<T, kWidth> (&held)[kGroupPacks], int group) const {
#pragma unroll
    for (int a = 0; a < kGroupPacks; ++a) {
      const int k = group * kGroupPacks + a;
      if (k >= kept) continue;
      held[a].load(places + k * threads, 0);
      mask(held[a], k);
    }
  }
  // Packs first, first + 1, ... of the row itself.
  template <int kPacks>
  __device__ __forceinline__ void read_row(Held<T, kWidth> (&held)[kPacks], const T* row, int first) const {
#pragma unroll
    for (int a = 0; a < kPacks; ++a) {
      if (first + a >= count) continue;
      held[a].load_once(row, int64_t{pack_of(first + a)} * kWidth);
      mask(held[a], first + a);
    }
  }
};

// What the second pass knows of a row.
struct Softmax {
  float top, log2_sum;
  int target, target_pack;  // the pack is -1 where the target is unknown
};
template <typename T, int kWidth>
__device__ __forceinline__ void to_gradient(Held<T, kWidth>& held, int pack, const Softmax& softmax) {
  float values[kWidth];
  held.to_floats(values);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    values[j] = exp2_fast(fmaf(values[j], kLog2E, -softmax.top) - softmax.log2_sum);
  }
  if (pack == softmax.target_pack) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      if (pack * kWidth + j == softmax.target) values[j] -= 1.0f;
    }
  }
  held.round_from(values);
  held.forget();
}

template <typename T, bool kGradient, int kThreads>
__global__ void __launch_bounds__(kThreads, kMostThreads / kThreads) cross_entropy_rows(CrossEntropy args, int places) {
  constexpr bool kIsLong = kThreads == kMostThreads;  // a row may be longer than the places
  constexpr int kWidth = kWidest<T>;
  using HeldPack = Held<T, kWidth>;
  extern __shared__ uint4 memory[];
  __shared__ PowerSum shared[2][kThreads / 32];
  const RowShare<T> share(args, memory, places);
  const auto store = [&](T* row, int k, const HeldPack& held) { held.store(row, int64_t{share.pack_of(k)} * kWidth); };

  int64_t index = blockIdx.x;
  T* next_row = static_cast<T*>(args.logits) + index * args.stride;
  int64_t next_target = args.targets[index];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) share.fetch(next_row, true, g);

  int turn = 0;
  for (; index < args.rows; index += gridDim.x) {
    T* row = next_row;
    const int64_t target = next_target;
    const bool has_next = index + gridDim.x < args.rows;
    next_row += gridDim.x * args.stride;
    if (has_next) next_target = args.targets[index + gridDim.x];

    if (target == kIgnoredTarget) {
      if (threadIdx.x == 0) args.losses[index] = 0;
      wait_for_groups(0);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) share.fetch(next_row, has_next, g);
      if constexpr (kGradient) {
        for (int k = 0; k < share.count; ++k) store(row, k, HeldPack());
      }
      continue;
    }
    const bool known = target >= 0 && target < args.vocab;
    float target_logit = 0;  // read before the gradient is written over it
    if (threadIdx.x == 0 && known) target_logit = to_float(row[target]);

    HeldPack held[kHeldPacks];
    if constexpr (kIsLong) share.read_row(held, row, places);
    PowerSum mine = {-INFINITY, 0};
#pragma unroll 1
    for (int g = 0; g < kGroups; ++g) {
      // Copies under way behind this group: the row's later ones and, where they were started, the next row's.
      wait_for_groups(kGradient ? kGroups - 1 - g : kGroups - 1);
      HeldPack group[kGroupPacks];
      share.read_group(group, g);
      if (!kGradient) share.fetch(next_row, has_next, g);
      if (g * kGroupPacks < share.kept) add_powers(mine, group, share.kept - g * kGroupPacks);
    }
    if constexpr (kIsLong) {
      if (places < share.count) add_powers(mine, held, share.count - places);
      for (int k = places + kHeldPacks; k < share.count; k += kGroupPacks) {
        HeldPack rest[kGroupPacks];
        share.read_row(rest, row, k);
        add_powers(mine, rest, share.count - k);
      }
    }
    const PowerSum all = join_block(mine, shared[turn]);
    turn ^= 1;
    // The maximum is taken off before anything small is added to it: beside a logit of 30,000 it would be lost.
    const float log2_sum = log2f(all.sum);
    if (threadIdx.x == 0) {
      args.losses[index] = known ? kLn2 * (log2_sum - fmaf(target_logit, kLog2E, -all.top)) : NAN;
    }
    const int target_pack = known ? static_cast<int>(target) / kWidth : -1;
    const Softmax softmax = {all.top, log2_sum, static_cast<int>(target), target_pack};
    if constexpr (kGradient) {
#pragma unroll 1
      for (int g = 0; g < kGroups; ++g) {
        HeldPack group[kGroupPacks];
        share.read_group(group, g);
#pragma unroll
        for (int a = 0; a < kGroupPacks; ++a) {
          const int k = g * kGroupPacks + a;
          if (k < share.kept) to_gradient(group[a], share.pack_of(k), softmax);
        }
        share.fetch(next_row, has_next, g);
#pragma unroll
        for (int a = 0; a < kGroupPacks; ++a) {
          const int k = g * kGroupPacks + a;
          if (k < share.kept) store(row, k, group[a]);
        }
      }
    }
    if constexpr (kGradient && kIsLong) {
#pragma unroll
      for (int a = 0; a < kHeldPacks; ++a) {
        if (places + a >= share.count) continue;
        to_gradient(held[a], share.pack_of(places + a), softmax);
        store(row, places + a, held[a]);
      }
      for (int k = places + kHeldPacks; k < share.count; k += kGroupPacks) {
        HeldPack rest[kGroupPacks];
        share.read_row(rest, row, k);
#pragma unroll
        for (int a = 0; a < kGroupPacks; ++a) {
          if (k + a >= share.count) continue;
          to_gradient(rest[a], share.pack_of(k + a), softmax);
          store(row, k + a, rest[a]);
        }
      }
    }
  }
}

__global__ void __launch_bounds__(kMostThreads)
    mean_of_losses(const float* losses, const int64_t* targets, int64_t rows, float* mean, float* share) {
  __shared__ double sums[kMostThreads];
  __shared__ int64_t counts[kMostThreads];
  double sum = 0;
  int64_t count = 0;
  for (int64_t row = threadIdx.x; row < rows; row += kMostThreads) {
    sum += static_cast<double>(losses[row]);
    count += targets[row] != kIgnoredTarget;
  }
  sums[threadIdx.x] = sum;
  counts[threadIdx.x] = count;
  for (int half = kMostThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) {
      sums[threadIdx.x] += sums[threadIdx.x + half];
      counts[threadIdx.x] += counts[threadIdx.x + half];
    }
  }
  if (threadIdx.x == 0) {
    *mean = static_cast<float>(sums[0] / static_cast<double>(counts[0]));
    *share = static_cast<float>(1.0 / static_cast<double>(counts[0]));
  }
}

constexpr int kScaleThreads = 256;

template <typename In, typename Out, int kWidth>
__global__ void __launch_bounds__(kScaleThreads) scale(ScaleGradient args) {
  const int64_t at = (int64_t{blockIdx.x} * kScaleThreads + threadIdx.x) * kWidth;
  if (at >= args.numel) return;
  const float factor = *args.factor * *args.share;
  const auto in = load_pack<In, kWidth>(args.in, at);
  Pack<Out, kWidth> out;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) out.values[j] = from_float<Out>(to_float(in.values[j]) * factor);
  store_pack(args.out, at, out);
}

template <typename In, typename Out>
void launch_scale(const ScaleGradient& args, Stream stream) {
  constexpr int kWidth = std::min(kWidest<In>, kWidest<Out>);
  if (all_aligned(args.in, args.out) && args.numel % kWidth == 0) {
    scale<In, Out, kWidth>
        <<<blocks_for(args.numel / kWidth, kScaleThreads), kScaleThreads, 0, stream_of(stream)>>>(args);
  } else {
    scale<In, Out, 1><<<blocks_for(args.numel, kScaleThreads), kScaleThreads, 0, stream_of(stream)>>>(args);
  }
}

template <typename T, bool kGradient, int kThreads>
void launch_blocks(const CrossEntropy& args, int64_t room, int processors, Stream stream) {
  const int64_t packs = (args.vocab + kWidest<T> - 1) / kWidest<T>;
  const int64_t in_room = room / (16 * kThreads);
  const int places = static_cast<int>(std::min({(packs + kThreads - 1) / kThreads, in_room, int64_t{kMostPlaces}}));
  const int nbytes = places * kThreads * 16;
  const auto kernel = cross_entropy_rows<T, kGradient, kThreads>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, nbytes), "cudaFuncSetAttribute");
  int resident = 0;
  check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kThreads, static_cast<size_t>(nbytes)),
             "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  const int64_t blocks = std::min<int64_t>(args.rows, int64_t{processors} * std::max(resident, 1));
  kernel<<<static_cast<unsigned>(blocks), kThreads, static_cast<size_t>(nbytes), stream_of(stream)>>>(args, places);
}

template <typename T, bool kGradient>
void launch_rows(const CrossEntropy& args, Stream stream) {
  int device = 0, processors = 0, most_shared = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  check_cuda(cudaDeviceGetAttribute(&most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "cudaDeviceGetAttribute");
  constexpr int64_t kReductionNbytes = 1024;  // static shared memory of the kernel, and some air
  const int64_t room = most_shared - kReductionNbytes;
  // Two blocks share a processor where each has a whole row there; a longer row has it alone.
  constexpr int kFewThreads = kMostThreads / 2;
  const int64_t packs = (args.vocab + kWidest<T> - 1) / kWidest<T>;
  const int64_t places = (packs + kFewThreads - 1) / kFewThreads;
  if (places <= kMostPlaces && places * kFewThreads * 16 <= room / 2) {
    launch_blocks<T, kGradient, kFewThreads>(args, room, processors, stream);
  } else {
    launch_blocks<T, kGradient, kMostThreads>(args, room, processors, stream);
  }
}

}  // namespace

void cross_entropy(const CrossEntropy& args, Stream stream) {
  if (args.rows == 0) return;
  if (!all_aligned(args.logits) || args.stride % kLogitsAlignment != 0 || args.stride < args.vocab ||
      args.vocab > INT32_MAX / 2) {
    throw Error("cuda cross_entropy", "rows of " + std::to_string(args.vocab) + " logits every " +
                                          std::to_string(args.stride) +
                                          " elements. Begin each at a multiple of 8 elements, below 2^30 of them.");
  }
  with_type(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if (args.with_gradient) {
      launch_rows<T, true>(args, stream);
    } else {
      launch_rows<T, false>(args, stream);
    }
  });
  check_launch("cross_entropy");
}

void mean_loss(const float* losses, const int64_t* targets, int64_t rows, float* mean, float* share, Stream stream) {
  mean_of_losses<<<1, kMostThreads, 0, stream_of(stream)>>>(losses, targets, rows, mean, share);
  check_launch("mean_loss");
}

void scale_gradient(const ScaleGradient& args, Stream stream) {
  if (args.numel == 0) return;
  with_type(args.in_dtype, [&](auto in) {
    with_type(args.out_dtype,
              [&](auto out) { launch_scale<typename decltype(in)::Type, typename decltype(out)::Type>(args, stream); });
  });
  check_launch("scale_gradient");
}

}  // namespace shoal::models::ops::cuda
