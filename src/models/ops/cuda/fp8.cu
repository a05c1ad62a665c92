// See fp8.h.
#include "models/ops/cuda/fp8.h"

#include <cuda_fp8.h>

#include <algorithm>

#include "models/ops/cuda/early_launch.cuh"
#include "models/ops/cuda/pack.cuh"

namespace shoal::models::ops::cuda {

namespace {

constexpr int kThreads = 256;
constexpr float kLeast = 1e-30f;  // what a tensor of zeros is taken for

float largest_of(Fp8 format) { return format == Fp8::e4m3 ? 448.0f : 57344.0f; }

// Magnitudes are not negative, so their bits compare as they do, and a NaN is above all numbers: its scale is NaN, and
// so is the product. Two elements of two bytes are compared at once. The largest is the same in any order.
template <typename T>
struct Magnitude {
  static constexpr int kElements = 4 / sizeof(T);  // a word

  static __device__ __forceinline__ uint32_t of_word(uint32_t word) {
    return word & (kElements == 1 ? 0x7fffffffu : 0x7fff7fffu);
  }
  static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
    if constexpr (kElements == 1) return a > b ? a : b;
    return __vmaxu2(a, b);
  }
  // Element i of a word, as bits of T.
  static __device__ __forceinline__ uint32_t element(uint32_t word, int i) {
    if constexpr (kElements == 1) return word;
    return i == 0 ? word & 0xffffu : word >> 16;
  }
  // Larger of a word's elements.
  static __device__ __forceinline__ uint32_t largest_of(uint32_t word) {
    return max(element(word, 0), element(word, kElements - 1));
  }
  static __device__ __forceinline__ float to_float(uint32_t bits) {
    if constexpr (std::is_same_v<T, float>) return __uint_as_float(bits);
    if constexpr (std::is_same_v<T, __nv_bfloat16>) return __uint_as_float(bits << 16);
    if constexpr (std::is_same_v<T, __half>) return __half2float(__ushort_as_half(static_cast<uint16_t>(bits)));
  }
};

// Raises a scale to that of a magnitude. A larger magnitude has no smaller scale, so the largest scale is the scale of
// the largest.
__device__ __forceinline__ void raise(float* scale, float magnitude, float largest_number) {
  float value = (magnitude < kLeast ? kLeast : magnitude) / largest_number;
  if (value != value) value = __int_as_float(0x7fffffff);
  atomicMax(reinterpret_cast<int*>(scale), __float_as_int(value));
}

template <typename T>
__global__ void __launch_bounds__(kThreads) largest(const void* x, int64_t numel, float largest_number, float* scale) {
  constexpr int kWidth = kWidest<T>;
  constexpr int kAhead = 4;
  using Bits = Magnitude<T>;
  __shared__ uint32_t shared[kThreads / 32];
  let_next_kernel_begin();
  uint32_t mine = 0;
  const int64_t step = int64_t{gridDim.x} * kThreads * kWidth;
  for (int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth; first < numel; first += step * kAhead) {
    Held<T, kWidth> held[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (first + a * step < numel) held[a].load(x, first + a * step);
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      for (const uint32_t word : {held[a].words.x, held[a].words.y, held[a].words.z, held[a].words.w}) {
        mine = Bits::larger(mine, Bits::of_word(word));
      }
    }
  }
  mine = __reduce_max_sync(0xffffffffu, Bits::largest_of(mine));
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = mine;
  wait_for_kernel_before();
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (const uint32_t of_warp : shared) mine = max(mine, of_warp);
  raise(scale, Bits::to_float(mine), largest_number);
}

// Eight neighbouring columns of one row; zeros outside of the tensor.
constexpr int kColumns = 8;
template <typename T>
struct EightColumns {
  static constexpr int kWidth = kWidest<T>;
  static constexpr int kPacks = kColumns / kWidth;
  static constexpr int kWords = 4 * kPacks;
  Held<T, kWidth> held[kPacks];

  __device__ __forceinline__ void load(const Fp8Input& input, int64_t row, int64_t column, bool once) {
    if (row >= input.rows || column >= input.columns) return;
#pragma unroll
    for (int part = 0; part < kPacks; ++part) {
      const int64_t element = row * input.columns + column + part * kWidth;
      if (once) {
        held[part].load_once(input.x, element);
      } else {
        held[part].load(input.x, element);
      }
    }
  }
  __device__ __forceinline__ void to_floats(float (&values)[kColumns]) const {
#pragma unroll
    for (int part = 0; part < kPacks; ++part) {
      float some[kWidth];
      held[part].to_floats(some);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) values[part * kWidth + j] = some[j];
    }
  }
  __device__ __forceinline__ uint32_t word(int w) const {
    const uint4& words = held[w / 4].words;
    return w % 4 == 0 ? words.x : w % 4 == 1 ? words.y : w % 4 == 2 ? words.z : words.w;
  }
};

// Strips of 128 rows and 512 columns: 64 threads side by side, so that a warp is within a row, and four rows at once.
constexpr int kStripRows = 128;
constexpr int kStripThreads = 64;
constexpr int kStripColumns = kStripThreads * kColumns;
constexpr int kRowsAtOnce = kThreads / kStripThreads;

template <typename T>
__global__ void __launch_bounds__(kThreads, 4)
    largest_of_lines(Fp8Input input, float largest_number, float* of_rows, float* of_columns) {
  using Bits = Magnitude<T>;
  using Eight = EightColumns<T>;
  constexpr int kWords = Eight::kWords;
  constexpr int kAhead = 32 / kWords;  // rows that a thread loads before it looks at them
  __shared__ uint32_t shared[kRowsAtOnce][kStripThreads * kWords];
  const int across = static_cast<int>(threadIdx.x) % kStripThreads;
  const int down = static_cast<int>(threadIdx.x) / kStripThreads;
  const int64_t column = int64_t{blockIdx.x} * kStripColumns + across * kColumns;
  const int64_t first_row = int64_t{blockIdx.y} * kStripRows + down;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  let_next_kernel_begin();
  uint32_t by_column[kWords] = {};
#pragma unroll 1
  for (int r = 0; r < kStripRows; r += kRowsAtOnce * kAhead) {
    Eight ahead[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) ahead[a].load(input, first_row + r + a * kRowsAtOnce, column, false);
    if (r == 0) wait_for_kernel_before();
    uint32_t of_my_row = 0;  // lane a of a warp has row a
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      uint32_t by_row = 0;
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        const uint32_t magnitude = Bits::of_word(ahead[a].word(w));
        by_column[w] = Bits::larger(by_column[w], magnitude);
        by_row = Bits::larger(by_row, magnitude);
      }
      if (of_rows == nullptr) continue;
      by_row = __reduce_max_sync(0xffffffffu, Bits::largest_of(by_row));
      if (lane == a) of_my_row = by_row;
    }
    const int64_t my_row = first_row + r + lane * kRowsAtOnce;
    if (of_rows != nullptr && lane < kAhead && my_row < input.rows) {
      raise(of_rows + my_row, Bits::to_float(of_my_row), largest_number);
    }
  }
  if (of_columns == nullptr) return;
#pragma unroll
  for (int w = 0; w < kWords; ++w) shared[down][across * kWords + w] = by_column[w];
  __syncthreads();
  for (int w = static_cast<int>(threadIdx.x); w < kStripThreads * kWords; w += kThreads) {
    uint32_t all = 0;
#pragma unroll
    for (int d = 0; d < kRowsAtOnce; ++d) all = Bits::larger(all, shared[d][w]);
#pragma unroll
    for (int i = 0; i < Bits::kElements; ++i) {
      const int64_t of = int64_t{blockIdx.x} * kStripColumns + w * Bits::kElements + i;
      if (of < input.columns) raise(of_columns + of, Bits::to_float(Bits::element(all, i)), largest_number);
    }
  }
}

// The scales of both sides; of the whole tensor: one row.
struct Lines {
  float* of_rows = nullptr;
  float* of_columns = nullptr;
  int64_t rows = 0, columns = 0;
};

__global__ void __launch_bounds__(kThreads) begin_scales(Lines lines, float value) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < lines.rows) lines.of_rows[i] = value;
  if (i < lines.columns) lines.of_columns[i] = value;
}

template <__nv_fp8_interpretation_t kFormat>
__device__ __forceinline__ uint32_t four_of(float a, float b, float c, float d) {
  const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, kFormat);
  const uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, kFormat);
  return low | high << 16;
}

// Tiles of 64 rows and 128 columns; a thread has eight columns of four rows, all on their way at once.
constexpr int kTileRows = 64;
constexpr int kTileColumns = 128;
constexpr int kRows = 4;                          // a thread
constexpr int kAcross = kTileColumns / kColumns;  // threads side by side
constexpr int kWordsDown = kTileRows / kRows;     // of four rows' bytes
static_assert(kAcross * kWordsDown == kThreads);

template <typename T, __nv_fp8_interpretation_t kFormat>
__global__ void __launch_bounds__(kThreads, 4) quantize(ToFp8 args) {
  // [column][four rows], the words of a line exchanged so that neighbouring threads meet different banks.
  __shared__ uint32_t tile[kTileColumns * kWordsDown];
  // What x is multiplied by: in each row for `out`, in each column for `transposed`.
  __shared__ float of_row[kTileRows];
  __shared__ alignas(16) float of_column[kTileColumns];
  const int thread = static_cast<int>(threadIdx.x);
  const int across = thread % kAcross;
  const int down = thread / kAcross;
  // From the end: what was read last for the scales may still be in the cache.
  const int64_t first_row = int64_t{gridDim.y - 1 - blockIdx.y} * kTileRows;
  const int64_t first_column = int64_t{blockIdx.x} * kTileColumns;
  const int64_t row = first_row + down * kRows;
  const int64_t column = first_column + across * kColumns;

  EightColumns<T> eight[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) eight[r].load(args.input, row + r, column, true);
  wait_for_kernel_before();
  static_assert(kTileColumns + kTileRows <= kThreads);
  if (thread < kTileColumns) {
    const int64_t c = first_column + thread;
    if (args.transposed != nullptr && c < args.input.columns) {
      of_column[thread] = 1.0f / (args.by_line ? args.transposed_scales[c] : args.out_scales[0]);
    }
  } else if (thread < kTileColumns + kTileRows) {
    const int64_t r = first_row + thread - kTileColumns;
    if (args.out != nullptr && r < args.input.rows) {
      of_row[thread - kTileColumns] = 1.0f / args.out_scales[args.by_line ? r : 0];
    }
  }
  __syncthreads();
  float values[kRows][kColumns];
#pragma unroll
  for (int r = 0; r < kRows; ++r) eight[r].to_floats(values[r]);

  if (args.out != nullptr && column < args.input.columns) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (row + r >= args.input.rows) continue;
      const float f = of_row[down * kRows + r];
      const float(&v)[kColumns] = values[r];
      uint2 bytes;
      bytes.x = four_of<kFormat>(v[0] * f, v[1] * f, v[2] * f, v[3] * f);
      bytes.y = four_of<kFormat>(v[4] * f, v[5] * f, v[6] * f, v[7] * f);
      *reinterpret_cast<uint2*>(static_cast<uint8_t*>(args.out) + (row + r) * args.input.columns + column) = bytes;
    }
  }
  if (args.transposed == nullptr) return;
  if (column < args.input.columns) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float4 four = *reinterpret_cast<const float4*>(of_column + across * kColumns + half * 4);
      const float factors[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int j = half * 4 + i;
        const float f = factors[i];
        tile[(across * kColumns + j) * kWordsDown + (down ^ across)] =
            four_of<kFormat>(values[0][j] * f, values[1][j] * f, values[2][j] * f, values[3][j] * f);
      }
    }
  }
  __syncthreads();
  // 16 rows of a column at a time, four threads a column.
  constexpr int kParts = kTileRows / 16;
#pragma unroll
  for (int c = thread; c < kTileColumns * kParts; c += kThreads) {
    const int in_tile = c / kParts, part = c % kParts;
    const int64_t out_row = first_row + part * 16;
    if (first_column + in_tile >= args.input.columns || out_row >= args.padded_rows) continue;
    uint32_t words[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) words[w] = tile[in_tile * kWordsDown + ((part * 4 + w) ^ (in_tile / kColumns))];
    *reinterpret_cast<uint4*>(static_cast<uint8_t*>(args.transposed) + (first_column + in_tile) * args.padded_rows +
                              out_row) = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

// Blocks of so many rows and columns.
dim3 tiles_of(int64_t rows, int64_t columns, int tile_rows, int tile_columns) {
  const int64_t down = (rows + tile_rows - 1) / tile_rows;
  if (down > 65535) throw Error("cuda fp8", "more than 4,194,240 rows in one tensor. Use a smaller batch.");
  return dim3(blocks_for(columns, tile_columns), static_cast<unsigned>(down));
}

void check_input(const Fp8Input& input) {
  if (input.columns % kColumns == 0 && all_aligned(input.x)) return;
  throw Error("cuda fp8", "rows of " + std::to_string(input.columns) +
                              " elements. Their number must be a multiple of 8, and memory aligned to 16 bytes.");
}

// Makes the scales on their way to quantize(), which is launched next.
template <typename T>
void launch_scales(const ToFp8& args, const Lines& lines, Stream stream) {
  const Fp8Input& input = args.input;
  const float largest_number = largest_of(args.format);
  if (!args.by_line) {
    constexpr int64_t kMostBlocks = 132 * 8;
    const int64_t numel = input.rows * input.columns;
    const int64_t blocks = std::min<int64_t>(kMostBlocks, blocks_for(numel / kWidest<T>, kThreads));
    return launch_early(largest<T>, "fp8 largest", dim3(static_cast<unsigned>(blocks)), dim3(kThreads), stream, input.x,
                        numel, largest_number, lines.of_rows);
  }
  const dim3 strips = tiles_of(input.rows, input.columns, kStripRows, kStripColumns);
  launch_early(largest_of_lines<T>, "fp8 largest of lines", strips, dim3(kThreads), stream, input, largest_number,
               lines.of_rows, lines.of_columns);
}

}  // namespace

bool multiplies_fp8() {
  int device = 0, major = 0, minor = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
  return major * 10 + minor >= 89;
}

void to_fp8(const ToFp8& args, Stream stream) {
  const Fp8Input& input = args.input;
  check_input(input);
  const bool across = args.transposed != nullptr;
  if (across && (args.padded_rows % 16 != 0 || args.padded_rows < input.rows || !all_aligned(args.transposed))) {
    throw Error("cuda fp8", "transposed lines of " + std::to_string(args.padded_rows) + " for " +
                                std::to_string(input.rows) + " rows. Pad to a multiple of 16.");
  }
  if (args.out == nullptr && !across) return;
  Lines lines;
  if (args.by_line) {
    if (args.out != nullptr) lines.of_rows = args.out_scales, lines.rows = input.rows;
    if (across) lines.of_columns = args.transposed_scales, lines.columns = input.columns;
  } else {
    lines.of_rows = args.out_scales;
    lines.rows = 1;
  }
  const bool is_empty = input.rows == 0 || input.columns == 0;
  // Scales are raised from 0; where nothing raises them they are those of zeros.
  if (const int64_t count = std::max(lines.rows, lines.columns); count > 0) {
    begin_scales<<<blocks_for(count, kThreads), kThreads, 0, stream_of(stream)>>>(
        lines, is_empty ? kLeast / largest_of(args.format) : 0.0f);
    check_launch("fp8 scales");
  }
  const int64_t rows = across ? args.padded_rows : input.rows;
  if (rows == 0 || input.columns == 0) return;
  with_type(input.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if (!is_empty) launch_scales<T>(args, lines, stream);
    const auto kernel = args.format == Fp8::e4m3 ? quantize<T, __NV_E4M3> : quantize<T, __NV_E5M2>;
    const dim3 tiles = tiles_of(rows, input.columns, kTileRows, kTileColumns);
    launch_early(kernel, "fp8 quantize", tiles, dim3(kThreads), stream, args);
  });
}

}  // namespace shoal::models::ops::cuda
