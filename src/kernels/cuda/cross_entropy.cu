// See cross_entropy.h.
//
// [Note: a row of logits is read once]
// A block takes a row. The first pass finds its maximum and the sum of exponentials and leaves the row in shared
// memory, as far as it fits; the second writes the gradient from there. What does not fit is read again, mostly from
// the cache.
#include "kernels/cuda/cross_entropy.h"

#include <algorithm>

#include "kernels/cuda/pack.cuh"

namespace shoal::kernels::cuda {

namespace {

constexpr int kMostThreads = 1024;
constexpr int kAhead = 4;  // packs that a thread loads before it uses the first

// Exponentials are powers of two of logits times log2(e); the maximum, rounded, is subtracted in the same operation.
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.69314718055994531f;

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// A sum of powers of two, kept as sum * 2^top.
struct PowerSum {
  float top, sum;
};
__device__ __forceinline__ PowerSum join(PowerSum a, PowerSum b) {
  const float top = fmaxf(a.top, b.top);
  if (top == -INFINITY) return {top, 0};
  return {top, a.sum * exp2_fast(a.top - top) + b.sum * exp2_fast(b.top - top)};
}
__device__ __forceinline__ PowerSum join_block(PowerSum mine, PowerSum* shared) {
  // In a fixed order in which each join is symmetric, so that all lanes hold the same bits.
  for (int offset = 16; offset > 0; offset /= 2) {
    mine = join(mine, {__shfl_xor_sync(0xffffffffu, mine.top, offset), __shfl_xor_sync(0xffffffffu, mine.sum, offset)});
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = mine;
  __syncthreads();
  PowerSum all = shared[0];
  for (unsigned w = 1; w < blockDim.x / 32; ++w) all = join(all, shared[w]);
  return all;
}

template <typename T, bool kGradient>
__global__ void __launch_bounds__(kMostThreads) cross_entropy_row(CrossEntropy args, int kept_packs) {
  constexpr int kWidth = kWidest<T>;
  extern __shared__ uint4 memory[];
  auto* kept = reinterpret_cast<Pack<T, kWidth>*>(memory);
  __shared__ PowerSum shared[kMostThreads / 32];

  T* row = static_cast<T*>(args.logits) + int64_t{blockIdx.x} * args.stride;
  auto* packs = reinterpret_cast<Pack<T, kWidth>*>(row);
  const int vocab = static_cast<int>(args.vocab);
  const int pack_count = (vocab + kWidth - 1) / kWidth;
  const int threads = static_cast<int>(blockDim.x);
  const int64_t target = args.targets[blockIdx.x];

  if (target == kIgnoredTarget) {
    if (threadIdx.x == 0) args.losses[blockIdx.x] = 0;
    if constexpr (kGradient) {
      Pack<T, kWidth> zero;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) zero.values[j] = from_float<T>(0);
      for (int p = threadIdx.x; p < pack_count; p += threads) packs[p] = zero;
    }
    return;
  }
  const bool known = target >= 0 && target < vocab;
  float target_logit = 0;  // read before the gradient is written over it
  if (threadIdx.x == 0 && known) target_logit = to_float(row[target]);

  PowerSum mine = {-INFINITY, 0};
  for (int first = threadIdx.x; first < pack_count; first += threads * kAhead) {
    Pack<T, kWidth> ahead[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (first + a * threads < pack_count) ahead[a] = packs[first + a * threads];
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int p = first + a * threads;
      if (p >= pack_count) continue;
      if (kGradient && p < kept_packs) kept[p] = ahead[a];
      float values[kWidth];
      float most = -INFINITY;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) values[j] = to_float(ahead[a].values[j]);
      if (p == pack_count - 1) {
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          if (p * kWidth + j >= vocab) values[j] = -INFINITY;
        }
      }
#pragma unroll
      for (int j = 0; j < kWidth; ++j) most = fmaxf(most, values[j]);
      const float top = fmaxf(mine.top, most * kLog2E);
      if (top == -INFINITY) continue;
      mine.sum *= exp2_fast(mine.top - top);
      mine.top = top;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) mine.sum += exp2_fast(fmaf(values[j], kLog2E, -top));
    }
  }
  const PowerSum all = join_block(mine, shared);
  // The maximum is taken off before anything small is added to it: beside a logit of 30,000 it would be lost.
  const float log2_sum = log2f(all.sum);
  if (threadIdx.x == 0) {
    args.losses[blockIdx.x] = known ? kLn2 * (log2_sum - fmaf(target_logit, kLog2E, -all.top)) : NAN;
  }
  if constexpr (kGradient) {
    const int target_pack = known ? static_cast<int>(target) / kWidth : -1;
    for (int p = threadIdx.x; p < pack_count; p += threads) {
      const Pack<T, kWidth> logits = p < kept_packs ? kept[p] : packs[p];
      float values[kWidth];
#pragma unroll
      for (int j = 0; j < kWidth; ++j)
        values[j] = exp2_fast(fmaf(to_float(logits.values[j]), kLog2E, -all.top) - log2_sum);
      if (p == target_pack) {
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          if (p * kWidth + j == target) values[j] -= 1.0f;
        }
      }
      Pack<T, kWidth> gradient;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) gradient.values[j] = from_float<T>(values[j]);
      packs[p] = gradient;
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

template <typename T, bool kGradient>
void launch_rows(const CrossEntropy& args, Stream stream) {
  int device = 0;
  int most_shared = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "cudaDeviceGetAttribute");
  constexpr int64_t kReductionNbytes = 2048;  // static shared memory of the kernel, and some air
  const int64_t row_nbytes = (args.vocab * static_cast<int64_t>(sizeof(T)) + 15) / 16 * 16;
  const int64_t kept_nbytes = kGradient ? std::min<int64_t>(row_nbytes, (most_shared - kReductionNbytes) / 16 * 16) : 0;
  // A block that fills a processor's shared memory brings all its threads; smaller ones share the processor.
  const int threads = row_nbytes > most_shared / 2 ? kMostThreads : kMostThreads / 2;
  check_cuda(cudaFuncSetAttribute(cross_entropy_row<T, kGradient>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(kept_nbytes)),
             "cudaFuncSetAttribute");
  cross_entropy_row<T, kGradient>
      <<<blocks_for(args.rows, 1), threads, static_cast<size_t>(kept_nbytes), stream_of(stream)>>>(
          args, static_cast<int>(kept_nbytes / 16));
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

}  // namespace shoal::kernels::cuda
