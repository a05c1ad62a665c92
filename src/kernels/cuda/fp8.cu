// See fp8.h.
#include "kernels/cuda/fp8.h"

#include <cuda_fp8.h>

#include <algorithm>

#include "kernels/cuda/pack.cuh"

namespace shoal::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr float kLeast = 1e-30f;  // what a tensor of zeros is taken for

float largest_of(Fp8 format) { return format == Fp8::e4m3 ? 448.0f : 57344.0f; }

// Magnitudes are not negative, so their bits compare as they do; the largest is the same in any order. A NaN is above
// all numbers and stays: its scale is NaN, and so is the product.
__device__ __forceinline__ float larger(float a, float b) { return a > b || a != a ? a : b; }
__device__ __forceinline__ void raise(float* most, float value) {
  if (value != value) value = __int_as_float(0x7fffffff);
  atomicMax(reinterpret_cast<int*>(most), __float_as_int(value));
}

template <typename T>
__global__ void __launch_bounds__(kThreads) largest(const void* x, int64_t numel, float* most) {
  constexpr int kWidth = kWidest<T>;
  constexpr int kAhead = 4;
  float mine = 0;
  const int64_t step = int64_t{gridDim.x} * kThreads * kWidth;
  for (int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth; first < numel; first += step * kAhead) {
    Pack<T, kWidth> packs[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (first + a * step < numel) packs[a] = load_pack<T, kWidth>(x, first + a * step);
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (first + a * step >= numel) continue;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) mine = larger(fabsf(to_float(packs[a].values[j])), mine);
    }
  }
  for (int offset = 16; offset > 0; offset /= 2) mine = larger(__shfl_xor_sync(0xffffffffu, mine, offset), mine);
  if (threadIdx.x % 32 == 0) raise(most, mine);
}

// Tiles of 64 rows and 64 columns; a thread has 8 neighbouring columns of two rows.
constexpr int kTile = 64;
constexpr int kColumns = 8;
constexpr int kRowThreads = kThreads / (kTile / kColumns);  // 32

template <typename T>
__device__ __forceinline__ void load_columns(const Fp8Input& input, int64_t row, int64_t column, float (&values)[8]) {
  constexpr int kWidth = kWidest<T>;
  if (row >= input.rows || column >= input.columns) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) values[j] = 0;
    return;
  }
#pragma unroll
  for (int part = 0; part < kColumns / kWidth; ++part) {
    const auto pack = load_pack<T, kWidth>(input.x, row * input.columns + column + part * kWidth);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) values[part * kWidth + j] = to_float(pack.values[j]);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) largest_of_lines(Fp8Input input, float* of_rows, float* of_columns) {
  __shared__ float shared[kRowThreads][kTile + 1];
  const int row_thread = threadIdx.x / (kTile / kColumns);
  const int64_t column = int64_t{blockIdx.x} * kTile + threadIdx.x % (kTile / kColumns) * kColumns;
  float most[kColumns] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t row = int64_t{blockIdx.y} * kTile + half * kRowThreads + row_thread;
    float values[kColumns];
    load_columns<T>(input, row, column, values);
    float of_row = 0;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const float value = fabsf(values[j]);
      most[j] = larger(value, most[j]);
      of_row = larger(value, of_row);
    }
    if (of_rows == nullptr) continue;
#pragma unroll
    for (int offset = 4; offset > 0; offset /= 2) {
      of_row = larger(__shfl_xor_sync(0xffffffffu, of_row, offset), of_row);
    }
    if (threadIdx.x % (kTile / kColumns) == 0 && row < input.rows) raise(of_rows + row, of_row);
  }
  if (of_columns == nullptr) return;
#pragma unroll
  for (int j = 0; j < kColumns; ++j) shared[row_thread][threadIdx.x % (kTile / kColumns) * kColumns + j] = most[j];
  __syncthreads();
  const int64_t mine = int64_t{blockIdx.x} * kTile + threadIdx.x;
  if (threadIdx.x >= kTile || mine >= input.columns) return;
  float of_column = 0;
  for (int r = 0; r < kRowThreads; ++r) of_column = larger(shared[r][threadIdx.x], of_column);
  raise(of_columns + mine, of_column);
}

__global__ void __launch_bounds__(kThreads) to_scales(float* most, int64_t count, float largest_number) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) most[i] = larger(most[i], kLeast) / largest_number;
}

template <__nv_fp8_interpretation_t kFormat>
__device__ __forceinline__ uint32_t four_of(float a, float b, float c, float d) {
  const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, kFormat);
  const uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, kFormat);
  return low | high << 16;
}

template <typename T, __nv_fp8_interpretation_t kFormat>
__global__ void __launch_bounds__(kThreads) quantize(QuantizeFp8 args) {
  // [column][row] as bytes; lines of 68 bytes spread the columns over the banks.
  constexpr int kLine = kTile + 4;
  __shared__ __align__(16) uint8_t tile[kTile * kLine];
  const int row_thread = threadIdx.x / (kTile / kColumns);
  const int in_tile = threadIdx.x % (kTile / kColumns) * kColumns;
  const int64_t column = int64_t{blockIdx.x} * kTile + in_tile;
  float by_column[kColumns];
  if (args.transposed != nullptr && column < args.input.columns) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
      by_column[j] = 1.0f / args.transposed_scales[(column + j) * args.transposed_step];
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row_in_tile = half * kRowThreads + row_thread;
    const int64_t row = int64_t{blockIdx.y} * kTile + row_in_tile;
    float values[kColumns];
    load_columns<T>(args.input, row, column, values);
    if (args.out != nullptr && row < args.input.rows && column < args.input.columns) {
      const float f = 1.0f / args.out_scales[row * args.out_step];
      uint2 eight;
      eight.x = four_of<kFormat>(values[0] * f, values[1] * f, values[2] * f, values[3] * f);
      eight.y = four_of<kFormat>(values[4] * f, values[5] * f, values[6] * f, values[7] * f);
      *reinterpret_cast<uint2*>(static_cast<uint8_t*>(args.out) + row * args.input.columns + column) = eight;
    }
    if (args.transposed != nullptr && column < args.input.columns) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        tile[(in_tile + j) * kLine + row_in_tile] =
            static_cast<uint8_t>(__nv_cvt_float_to_fp8(values[j] * by_column[j], __NV_SATFINITE, kFormat));
      }
    }
  }
  if (args.transposed == nullptr) return;
  __syncthreads();
  // Four threads a column, 16 rows each.
  const int64_t out_column = int64_t{blockIdx.x} * kTile + threadIdx.x / 4;
  const int first_row = threadIdx.x % 4 * 16;
  const int64_t out_row = int64_t{blockIdx.y} * kTile + first_row;
  if (out_column >= args.input.columns || out_row >= args.padded_rows) return;
  const auto* words = reinterpret_cast<const uint32_t*>(tile + threadIdx.x / 4 * kLine + first_row);
  *reinterpret_cast<uint4*>(static_cast<uint8_t*>(args.transposed) + out_column * args.padded_rows + out_row) =
      make_uint4(words[0], words[1], words[2], words[3]);
}

dim3 tiles_of(int64_t rows, int64_t columns) {
  const int64_t down = (rows + kTile - 1) / kTile;
  if (down > 65535) throw Error("cuda fp8", "more than 4,194,240 rows in one tensor. Use a smaller batch.");
  return dim3(blocks_for(columns, kTile), static_cast<unsigned>(down));
}

void check_input(const Fp8Input& input) {
  if (input.columns % kColumns == 0 && all_aligned(input.x)) return;
  throw Error("cuda fp8", "rows of " + std::to_string(input.columns) +
                              " elements. Their number must be a multiple of 8, and memory aligned to 16 bytes.");
}

void finish_scales(float* most, int64_t count, Fp8 format, Stream stream) {
  to_scales<<<blocks_for(count, kThreads), kThreads, 0, stream_of(stream)>>>(most, count, largest_of(format));
  check_launch("fp8 scales");
}

void clear(float* most, int64_t count, Stream stream) {
  check_cuda(cudaMemsetAsync(most, 0, static_cast<size_t>(count) * sizeof(float), stream_of(stream)),
             "cudaMemsetAsync");
}

}  // namespace

bool multiplies_fp8() {
  int device = 0, major = 0, minor = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
  return major * 10 + minor >= 89;
}

void fp8_scale(const Fp8Input& input, Fp8 format, float* scale, Stream stream) {
  check_input(input);
  clear(scale, 1, stream);
  const int64_t numel = input.rows * input.columns;
  if (numel > 0) {
    with_type(input.dtype, [&](auto tag) {
      using T = typename decltype(tag)::Type;
      constexpr int64_t kMostBlocks = 132 * 8;
      const int64_t blocks = std::min<int64_t>(kMostBlocks, blocks_for(numel / kWidest<T>, kThreads));
      largest<T><<<static_cast<unsigned>(blocks), kThreads, 0, stream_of(stream)>>>(input.x, numel, scale);
    });
    check_launch("fp8 largest");
  }
  finish_scales(scale, 1, format, stream);
}

void fp8_scales(const Fp8Input& input, Fp8 format, float* row_scales, float* column_scales, Stream stream) {
  check_input(input);
  if (row_scales != nullptr) clear(row_scales, input.rows, stream);
  if (column_scales != nullptr) clear(column_scales, input.columns, stream);
  if (input.rows > 0 && input.columns > 0) {
    with_type(input.dtype, [&](auto tag) {
      using T = typename decltype(tag)::Type;
      largest_of_lines<T>
          <<<tiles_of(input.rows, input.columns), kThreads, 0, stream_of(stream)>>>(input, row_scales, column_scales);
    });
    check_launch("fp8 largest of lines");
  }
  if (row_scales != nullptr && input.rows > 0) finish_scales(row_scales, input.rows, format, stream);
  if (column_scales != nullptr && input.columns > 0) finish_scales(column_scales, input.columns, format, stream);
}

void quantize_fp8(const QuantizeFp8& args, Stream stream) {
  check_input(args.input);
  const bool across = args.transposed != nullptr;
  if (across && (args.padded_rows % 16 != 0 || args.padded_rows < args.input.rows || !all_aligned(args.transposed))) {
    throw Error("cuda fp8", "transposed lines of " + std::to_string(args.padded_rows) + " for " +
                                std::to_string(args.input.rows) + " rows. Pad to a multiple of 16.");
  }
  if (args.input.columns == 0) return;
  const int64_t rows = across ? args.padded_rows : args.input.rows;
  if (rows == 0) return;
  with_type(args.input.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const dim3 tiles = tiles_of(rows, args.input.columns);
    if (args.format == Fp8::e4m3) {
      quantize<T, __NV_E4M3><<<tiles, kThreads, 0, stream_of(stream)>>>(args);
    } else {
      quantize<T, __NV_E5M2><<<tiles, kThreads, 0, stream_of(stream)>>>(args);
    }
  });
  check_launch("quantize_fp8");
}

}  // namespace shoal::kernels::cuda
