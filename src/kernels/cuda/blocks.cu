// See blocks.h; the contract is kernels/blocks_reference.cpp.
//
// [Note: four blocks a warp]
// A thread has four neighbouring elements of each of the four blocks of its warp: 16 bytes of fp32, 8 of the two-byte
// dtypes. The largest magnitudes of the four are found in six exchanges and not twenty: each of the first two leaves a
// thread with half of the blocks, so that the block of thread t is t / 8 when three more end them, and one division
// serves four scales. Blocks have 132 or 68 bytes, no multiple of a sector, so they pass through shared memory, from
// where a warp moves its four as one run of words.
#include "kernels/cuda/blocks.h"

#include <algorithm>

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/in_place.h"

namespace shoal::kernels::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kTile = 4;  // blocks of a warp
constexpr int kThreads = 256;
constexpr int kAtOnceThreads = 1024;  // of the one thread block that reads before it writes
constexpr int64_t kAtOnceBlocks = kAtOnceThreads / kWarp * kTile;
constexpr unsigned kWholeWarp = 0xffffffffu;
constexpr uint32_t kInfinity = 0x7f800000u, kQuietNan = 0x7fc00000u;
constexpr float kMostFinite = 0x1.fffffep127f;
// Added to a number below 2^22, it leaves the nearest whole one, ties to even, in the low bits.
constexpr float kRounder = 0x1.8p23f;

static_assert(kWarp * kVector == kBlockNumel, "a warp has a block");

template <int bits>
constexpr int kBlockWords = static_cast<int>(block_nbytes(bits) / sizeof(uint32_t));

// Four elements; what is not before `end` counts as zero.
template <DType dtype>
__device__ inline void load_four(const void* values, int64_t at, int64_t end, bool in_vectors, float (&x)[kVector]) {
  using T = typename Bits<dtype>::Type;
  using Vector = typename Word<kVector * sizeof(T)>::Type;
  const T* from = static_cast<const T*>(values) + at;
  T bits[kVector] = {};
  if (in_vectors && at + kVector <= end) {
    const Vector vector = *reinterpret_cast<const Vector*>(from);
    __builtin_memcpy(bits, &vector, sizeof bits);
  } else {
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      if (at + k < end) bits[k] = from[k];
    }
  }
#pragma unroll
  for (int k = 0; k < kVector; ++k) x[k] = to_float<dtype>(bits[k]);
}

template <DType dtype>
__device__ inline void store_four(void* values, int64_t at, int64_t end, bool in_vectors, const float (&x)[kVector]) {
  using T = typename Bits<dtype>::Type;
  using Vector = typename Word<kVector * sizeof(T)>::Type;
  T* to = static_cast<T*>(values) + at;
  T bits[kVector];
#pragma unroll
  for (int k = 0; k < kVector; ++k) bits[k] = from_float<dtype>(x[k]);
  if (in_vectors && at + kVector <= end) {
    Vector vector;
    __builtin_memcpy(&vector, bits, sizeof bits);
    *reinterpret_cast<Vector*>(to) = vector;
  } else {
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      if (at + k < end) to[k] = bits[k];
    }
  }
}

__device__ inline uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

// Of each block a thread's largest magnitude; it gets that of the whole block lane / 8.
__device__ inline uint32_t most_of_blocks(const uint32_t (&most)[kTile], int lane) {
  uint32_t half[kTile / 2];
  const bool upper = (lane & 16) != 0, odd = (lane & 8) != 0;
#pragma unroll
  for (int b = 0; b < kTile / 2; ++b) {
    const uint32_t mine = upper ? most[b + 2] : most[b], theirs = upper ? most[b] : most[b + 2];
    half[b] = larger(mine, __shfl_xor_sync(kWholeWarp, theirs, 16));
  }
  const uint32_t mine = odd ? half[1] : half[0], theirs = odd ? half[0] : half[1];
  uint32_t found = larger(mine, __shfl_xor_sync(kWholeWarp, theirs, 8));
#pragma unroll
  for (int apart = 4; apart > 0; apart /= 2) found = larger(found, __shfl_xor_sync(kWholeWarp, found, apart));
  return found;
}

// The low bytes of four words.
__device__ inline uint32_t low_bytes(const uint32_t (&words)[kVector]) {
  const uint32_t first = __byte_perm(words[0], words[1], 0x0040), second = __byte_perm(words[2], words[3], 0x0040);
  return __byte_perm(first, second, 0x5410);
}

// A thread's four elements of block `b` of a tile, as they arrive.
template <int bits>
__device__ inline void unpack_four(const uint32_t* tile, int b, int lane, float (&x)[kVector]) {
  const uint32_t* block = tile + b * kBlockWords<bits>;
  const float scale = __uint_as_float(block[0]);
  if constexpr (bits == 8) {
    const uint32_t word = block[1 + lane];
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      x[k] = __fmul_rn(static_cast<float>(static_cast<int8_t>(word >> (8 * k))), scale);
    }
  } else {
    constexpr int kHalf = kWarp / 2;
    const uint32_t word = block[1 + lane % kHalf] >> (lane < kHalf ? 0 : 4);
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      const int number = static_cast<int>(((word >> (8 * k)) & 15u) ^ 8u) - 8;
      x[k] = __fmul_rn(static_cast<float>(number), scale);
    }
  }
}

// The words of blocks [first, end), four of them at most.
template <int bits>
__device__ inline int words_in(int64_t first, int64_t end) {
  const int64_t left = end - first;
  return kBlockWords<bits> * static_cast<int>(left <= 0 ? 0 : left < kTile ? left : kTile);
}

// What of error feedback the kernel needs.
struct Errors {
  uint16_t* memory = nullptr;
  float keep = 0, take = 0;
  bool forgets = false;
  bool in_vectors = false;
};

// From elements to blocks.
template <DType dtype, int bits, bool kFeedsBack>
struct Pack {
  static constexpr int kWords = kTile * kBlockWords<bits>;
  const void* values;
  int64_t numel;
  uint32_t* blocks;
  bool in_vectors;
  Errors errors;

  __device__ void read(int64_t first, int64_t end, int lane, uint32_t* tile) const {
    const int64_t past = end * kBlockNumel < numel ? end * kBlockNumel : numel;
    float x[kTile][kVector], error[kFeedsBack ? kTile : 1][kVector];
    uint32_t most[kTile];
#pragma unroll
    for (int b = 0; b < kTile; ++b) {
      const int64_t at = (first + b) * kBlockNumel + lane * kVector;
      load_four<dtype>(values, at, past, in_vectors, x[b]);
      if constexpr (kFeedsBack) {
        load_four<DType::bf16>(errors.memory, at, errors.forgets ? 0 : past, errors.in_vectors, error[b]);
#pragma unroll
        for (int k = 0; k < kVector; ++k) x[b][k] = __fadd_rn(x[b][k], error[b][k]);
      }
    }
#pragma unroll
    for (int b = 0; b < kTile; ++b) {
      most[b] = 0;
#pragma unroll
      for (int k = 0; k < kVector; ++k) most[b] = larger(most[b], __float_as_uint(x[b][k]) & 0x7fffffffu);
    }
    // Of block lane / 8.
    const uint32_t found = most_of_blocks(most, lane);
    constexpr float kMostNumber = bits == 8 ? 127.0f : 7.0f;
    float scale = __uint_as_float(kQuietNan), inverse = 0;  // 0: an element is not finite
    if (found < kInfinity) {
      scale = __fdiv_rn(__uint_as_float(found), kMostNumber);
      if (scale < 0x1p-126f) scale = 0x1p-126f;
      if (__fmul_rn(scale, kMostNumber) > kMostFinite) scale = __uint_as_float(__float_as_uint(scale) - 1);
      inverse = __fdiv_rn(1.0f, scale);
    }
    if (lane % 8 == 0) tile[lane / 8 * kBlockWords<bits>] = __float_as_uint(scale);

    uint32_t packed[kTile];
#pragma unroll
    for (int b = 0; b < kTile; ++b) {
      const float by = __shfl_sync(kWholeWarp, inverse, 8 * b);
      float of_block = 0;
      if constexpr (kFeedsBack) of_block = __shfl_sync(kWholeWarp, scale, 8 * b);
      uint32_t numbers[kVector];
#pragma unroll
      for (int k = 0; k < kVector; ++k) {
        const float rounded = __fadd_rn(__fmul_rn(x[b][k], by), kRounder);
        numbers[k] = __float_as_uint(rounded);
        if constexpr (kFeedsBack) {
          const float arrives = __fmul_rn(__fsub_rn(rounded, kRounder), of_block);
          const float lost = __fsub_rn(x[b][k], arrives);
          const float mixed = __fadd_rn(__fmul_rn(errors.keep, error[b][k]), __fmul_rn(errors.take, lost));
          if (by != 0) error[b][k] = mixed;
        }
      }
      packed[b] = by != 0 ? low_bytes(numbers) : 0;
      if constexpr (kFeedsBack) {
        const int64_t at = (first + b) * kBlockNumel + lane * kVector;
        store_four<DType::bf16>(errors.memory, at, past, errors.in_vectors, error[b]);
      }
    }
    put(packed, lane, tile);
  }

  __device__ static void put(uint32_t (&packed)[kTile], int lane, uint32_t* tile) {
    if constexpr (bits == 8) {
#pragma unroll
      for (int b = 0; b < kTile; ++b) tile[b * kBlockWords<bits> + 1 + lane] = packed[b];
    } else {
      // Threads of the lower half have the low halves of bytes, those of the upper half the high ones: of two blocks
      // each of them puts one together.
      constexpr int kHalf = kWarp / 2;
      const bool upper = lane >= kHalf;
#pragma unroll
      for (int b = 0; b < kTile; b += 2) {
        const uint32_t first = packed[b] & 0x0f0f0f0fu, second = packed[b + 1] & 0x0f0f0f0fu;
        const uint32_t got = __shfl_xor_sync(kWholeWarp, upper ? first : second, kHalf);
        const uint32_t word = upper ? got | (second << 4) : first | (got << 4);
        tile[(b + (upper ? 1 : 0)) * kBlockWords<bits> + 1 + lane % kHalf] = word;
      }
    }
  }

  __device__ void write(int64_t first, int64_t end, int lane, const uint32_t* tile) const {
    uint32_t* to = blocks + first * kBlockWords<bits>;
    const int words = words_in<bits>(first, end);
    for (int word = lane; word < words; word += kWarp) to[word] = tile[word];
  }
};

// And back.
template <DType dtype, int bits>
struct Unpack {
  static constexpr int kWords = kTile * kBlockWords<bits>;
  const uint32_t* blocks;
  void* values;
  int64_t numel;
  bool in_vectors;

  __device__ void read(int64_t first, int64_t end, int lane, uint32_t* tile) const {
    const uint32_t* from = blocks + first * kBlockWords<bits>;
    const int words = words_in<bits>(first, end);
    for (int word = lane; word < words; word += kWarp) tile[word] = from[word];
  }
  __device__ void write(int64_t first, int64_t end, int lane, const uint32_t* tile) const {
#pragma unroll
    for (int b = 0; b < kTile; ++b) {
      if (first + b >= end) return;
      float x[kVector];
      unpack_four<bits>(tile, b, lane, x);
      store_four<dtype>(values, (first + b) * kBlockNumel + lane * kVector, numel, in_vectors, x);
    }
  }
};

// Blocks [begin, end). With one thread block of kAtOnceThreads all of them are read before one is written.
template <int kBlockThreads, class Body>
__global__ void __launch_bounds__(kBlockThreads) blocks_kernel(const Body body, int64_t begin, int64_t end) {
  constexpr int kWarps = kBlockThreads / kWarp;
  __shared__ uint32_t tiles[kWarps][Body::kWords];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t first = begin + (static_cast<int64_t>(blockIdx.x) * kWarps + warp) * kTile;
  body.read(first, end, lane, tiles[warp]);
  if constexpr (kBlockThreads == kAtOnceThreads) {
    __syncthreads();  // whoever writes waits until all have read
  } else {
    __syncwarp();  // whoever reads the tile waits until it is complete
  }
  body.write(first, end, lane, tiles[warp]);
}

template <class Body>
void launch_span(const Body& body, int64_t begin, int64_t end, bool at_once, cudaStream_t stream) {
  if (at_once) {
    blocks_kernel<kAtOnceThreads><<<1, kAtOnceThreads, 0, stream>>>(body, begin, end);
  } else {
    constexpr int64_t kBlocks = kThreads / kWarp * kTile;
    const auto grid = static_cast<unsigned>((end - begin + kBlocks - 1) / kBlocks);
    blocks_kernel<kThreads><<<grid, kThreads, 0, stream>>>(body, begin, end);
  }
}

int64_t blocks_of(int64_t numel) { return (numel + kBlockNumel - 1) / kBlockNumel; }

// Addresses as numbers: pointers to different memory must not be compared.
struct Bytes {
  Bytes(const void* memory, size_t nbytes) : begin(reinterpret_cast<uintptr_t>(memory)), end(begin + nbytes) {}
  bool meets(const Bytes& other) const { return begin < other.end && other.begin < end; }
  uintptr_t begin, end;
};

bool has_vectors(const void* memory, size_t element_nbytes) {
  check_element_alignment(memory, element_nbytes);
  return reinterpret_cast<uintptr_t>(memory) % (kVector * element_nbytes) == 0;
}

void check_blocks(const void* blocks, int64_t numel, int bits) {
  SHOAL_CHECK_GE(numel, 0);
  SHOAL_CHECK(bits == 8 || bits == 4, "blocks of {} bits", bits);
  check_element_alignment(blocks, sizeof(uint32_t));
}

template <DType dtype, int bits, bool kFeedsBack>
void pack(const void* values, int64_t numel, void* blocks, const ErrorFeedback& feedback, Stream stream) {
  constexpr size_t kElements = kBlockNumel * nbytes_of(dtype);
  const int64_t count = blocks_of(numel);
  if (count == 0) return;
  Pack<dtype, bits, kFeedsBack> body{
      values, numel, static_cast<uint32_t*>(blocks), has_vectors(values, nbytes_of(dtype)), {}};
  if (kFeedsBack) {
    body.errors = {static_cast<uint16_t*>(feedback.errors), feedback.keep, 1.0f - feedback.keep, feedback.forgets,
                   has_vectors(feedback.errors, sizeof(uint16_t))};
  }
  const Bytes from(values, static_cast<size_t>(numel) * nbytes_of(dtype));
  const Bytes to(blocks, static_cast<size_t>(count) * block_nbytes(bits));
  if (!from.meets(to)) {
    launch_span(body, 0, count, false, stream_of(stream));
    return check_launch("quantize");
  }
  SHOAL_CHECK(from.begin == to.begin && to.end <= from.end, "blocks in the midst of their elements");
  for (const BlockSpan& span : spans_in_place(count, block_nbytes(bits), kElements, kAtOnceBlocks)) {
    launch_span(body, span.begin, span.end, span.at_once, stream_of(stream));
    check_launch("quantize in place");
  }
}

template <DType dtype, int bits>
void unpack(const void* blocks, void* values, int64_t numel, Stream stream) {
  constexpr size_t kElements = kBlockNumel * nbytes_of(dtype);
  const int64_t count = blocks_of(numel);
  if (count == 0) return;
  const Unpack<dtype, bits> body{static_cast<const uint32_t*>(blocks), values, numel,
                                 has_vectors(values, nbytes_of(dtype))};
  const Bytes from(blocks, static_cast<size_t>(count) * block_nbytes(bits));
  const Bytes to(values, static_cast<size_t>(numel) * nbytes_of(dtype));
  if (!from.meets(to)) {
    launch_span(body, 0, count, false, stream_of(stream));
    return check_launch("dequantize");
  }
  SHOAL_CHECK(from.end == to.end && numel % kBlockNumel == 0, "blocks in the midst of their elements");
  const std::vector<BlockSpan> spans = spans_in_place(count, block_nbytes(bits), kElements, kAtOnceBlocks);
  for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
    launch_span(body, count - span->end, count - span->begin, span->at_once, stream_of(stream));
    check_launch("dequantize in place");
  }
}

struct FoldArgs {
  const uint32_t* slices;
  int64_t slice_words;
  int source_count;
  void* out;
  int64_t numel;
  float carry, post;
  bool in_vectors;
};

// A warp has the next slice of its four blocks on the way while it adds one.
template <int bits, DType out_dtype, DType rounding>
__global__ void __launch_bounds__(kThreads) fold_blocks_kernel(const FoldArgs a) {
  constexpr int kWarps = kThreads / kWarp, kWords = kTile * kBlockWords<bits>, kLoads = (kWords + kWarp - 1) / kWarp;
  __shared__ uint32_t tiles[kWarps][kWords];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kWarps + warp) * kTile;
  const int words = words_in<bits>(first, (a.numel + kBlockNumel - 1) / kBlockNumel);
  const uint32_t* from = a.slices + first * kBlockWords<bits>;
  uint32_t* tile = tiles[warp];

  uint32_t next[kLoads];
  const auto load = [&](const uint32_t* slice) {
#pragma unroll
    for (int k = 0; k < kLoads; ++k) next[k] = lane + k * kWarp < words ? slice[lane + k * kWarp] : 0;
  };
  load(from);
  float sum[kTile][kVector] = {};
  bool has_sum = a.carry != 0;
  if (has_sum) {
#pragma unroll
    for (int b = 0; b < kTile; ++b) {
      load_four<out_dtype>(a.out, (first + b) * kBlockNumel + lane * kVector, a.numel, a.in_vectors, sum[b]);
#pragma unroll
      for (int k = 0; k < kVector; ++k) sum[b][k] = __fmul_rn(a.carry, sum[b][k]);
    }
  }
  for (int source = 0; source < a.source_count; ++source) {
    __syncwarp();  // the tile is overwritten when all have read the slice before
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      if (lane + k * kWarp < kWords) tile[lane + k * kWarp] = next[k];
    }
    __syncwarp();  // whoever reads the tile waits until it is complete
    if (source + 1 < a.source_count) load(from + (source + 1) * a.slice_words);
#pragma unroll
    for (int b = 0; b < kTile; ++b) {
      float x[kVector];
      unpack_four<bits>(tile, b, lane, x);
#pragma unroll
      for (int k = 0; k < kVector; ++k) sum[b][k] = has_sum ? __fadd_rn(sum[b][k], x[k]) : x[k];
    }
    has_sum = true;
  }
#pragma unroll
  for (int b = 0; b < kTile; ++b) {
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      sum[b][k] = __fmul_rn(a.post, sum[b][k]);
      if constexpr (out_dtype != rounding) sum[b][k] = to_float<rounding>(from_float<rounding>(sum[b][k]));
    }
    store_four<out_dtype>(a.out, (first + b) * kBlockNumel + lane * kVector, a.numel, a.in_vectors, sum[b]);
  }
}

template <int bits, DType out_dtype, DType rounding>
void launch_fold(const BlockFold& args, Stream stream) {
  const OrderedFold& fold = args.fold;
  const FoldArgs a{static_cast<const uint32_t*>(args.slices),
                   static_cast<int64_t>(args.slice_nbytes / sizeof(uint32_t)),
                   fold.source_count,
                   fold.out,
                   fold.numel,
                   fold.carry,
                   fold.post,
                   has_vectors(fold.out, nbytes_of(out_dtype))};
  constexpr int64_t kBlocks = kThreads / kWarp * kTile;
  const auto grid = static_cast<unsigned>((blocks_of(fold.numel) + kBlocks - 1) / kBlocks);
  if (grid > 0) fold_blocks_kernel<bits, out_dtype, rounding><<<grid, kThreads, 0, stream_of(stream)>>>(a);
  check_launch("fold_blocks");
}

template <int bits>
void fold_of_bits(const BlockFold& args, Stream stream) {
  const bool in_fp32 = args.fold.out_dtype == DType::f32;
  switch (args.fold.rounding) {
    case DType::f32: return launch_fold<bits, DType::f32, DType::f32>(args, stream);
    case DType::bf16:
      if (in_fp32) return launch_fold<bits, DType::f32, DType::bf16>(args, stream);
      return launch_fold<bits, DType::bf16, DType::bf16>(args, stream);
    case DType::f16:
      if (in_fp32) return launch_fold<bits, DType::f32, DType::f16>(args, stream);
      return launch_fold<bits, DType::f16, DType::f16>(args, stream);
  }
}

template <int bits>
void quantize_of(const void* values, DType dtype, int64_t numel, void* blocks, Stream stream) {
  switch (dtype) {
    case DType::f32: return pack<DType::f32, bits, false>(values, numel, blocks, {}, stream);
    case DType::bf16: return pack<DType::bf16, bits, false>(values, numel, blocks, {}, stream);
    case DType::f16: return pack<DType::f16, bits, false>(values, numel, blocks, {}, stream);
  }
}

template <int bits>
void dequantize_to(const void* blocks, void* values, DType dtype, int64_t numel, Stream stream) {
  switch (dtype) {
    case DType::f32: return unpack<DType::f32, bits>(blocks, values, numel, stream);
    case DType::bf16: return unpack<DType::bf16, bits>(blocks, values, numel, stream);
    case DType::f16: return unpack<DType::f16, bits>(blocks, values, numel, stream);
  }
}

}  // namespace

void quantize(const void* values, DType dtype, int64_t numel, int bits, void* blocks, Stream stream) {
  check_blocks(blocks, numel, bits);
  return bits == 8 ? quantize_of<8>(values, dtype, numel, blocks, stream)
                   : quantize_of<4>(values, dtype, numel, blocks, stream);
}

void dequantize(const void* blocks, int bits, void* values, DType dtype, int64_t numel, Stream stream) {
  check_blocks(blocks, numel, bits);
  return bits == 8 ? dequantize_to<8>(blocks, values, dtype, numel, stream)
                   : dequantize_to<4>(blocks, values, dtype, numel, stream);
}

void quantize_with_errors(const float* values, int64_t numel, int bits, void* blocks, const ErrorFeedback& feedback,
                          Stream stream) {
  check_blocks(blocks, numel, bits);
  SHOAL_CHECK(feedback.errors != nullptr || numel == 0, "no memory for errors");
  return bits == 8 ? pack<DType::f32, 8, true>(values, numel, blocks, feedback, stream)
                   : pack<DType::f32, 4, true>(values, numel, blocks, feedback, stream);
}

void fold_blocks(const BlockFold& args, Stream stream) {
  check(args);
  check_blocks(args.slices, args.fold.numel, args.bits);
  SHOAL_CHECK_EQ(args.slice_nbytes % sizeof(uint32_t), 0u);
  return args.bits == 8 ? fold_of_bits<8>(args, stream) : fold_of_bits<4>(args, stream);
}

}  // namespace shoal::kernels::cuda
