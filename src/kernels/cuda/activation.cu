// See activation.h.
#include "kernels/cuda/activation.h"

#include "kernels/cuda/pack.cuh"

namespace shoal::kernels::cuda {

namespace {

constexpr int kThreads = 256;

// 1 / (1 + exp(-x)), right to a few units in the last place; 0 and 1 far out.
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }

// Each of these computes one element.
struct SwigluStep {
  static __device__ __forceinline__ float value(float gate, float up) { return gate * sigmoid(gate) * up; }
};

// The tanh form by the identity (1 + tanh(u)) / 2 = sigmoid(2 u).
constexpr float kTwoRootTwoOverPi = 1.5957691216057308f;
constexpr float kCubic = 0.044715f;
struct TanhGelu {
  static __device__ __forceinline__ float value(float x) {
    return x * sigmoid(kTwoRootTwoOverPi * fmaf(kCubic * x, x * x, x));
  }
  static __device__ __forceinline__ float slope(float x) {
    const float s = sigmoid(kTwoRootTwoOverPi * fmaf(kCubic * x, x * x, x));
    const float inner = kTwoRootTwoOverPi * fmaf(3.0f * kCubic * x, x, 1.0f);
    return fmaf(x * s * (1.0f - s), inner, s);
  }
};
constexpr float kRootHalf = 0.70710678118654752f;
constexpr float kDensityAtZero = 0.39894228040143268f;
struct ExactGelu {
  static __device__ __forceinline__ float value(float x) { return 0.5f * x * erfcf(-x * kRootHalf); }
  static __device__ __forceinline__ float slope(float x) {
    return fmaf(x * kDensityAtZero, expf(-0.5f * x * x), 0.5f * erfcf(-x * kRootHalf));
  }
};

// The element at which this thread's pack begins, or -1 past the end.
template <int kWidth>
__device__ __forceinline__ int64_t first_element(int64_t numel) {
  const int64_t element = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  return element < numel ? element : -1;
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads) swiglu_forward(SwigluForward args) {
  const int64_t at = first_element<kWidth>(args.numel);
  if (at < 0) return;
  const auto gate = load_pack<T, kWidth>(args.gate, at);
  const auto up = load_pack<T, kWidth>(args.up, at);
  Pack<T, kWidth> y;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    y.values[j] = from_float<T>(SwigluStep::value(to_float(gate.values[j]), to_float(up.values[j])));
  }
  store_pack(args.y, at, y);
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads) swiglu_backward_kernel(SwigluBackward args) {
  const int64_t at = first_element<kWidth>(args.numel);
  if (at < 0) return;
  const auto gate = load_pack<T, kWidth>(args.gate, at);
  const auto up = load_pack<T, kWidth>(args.up, at);
  const auto dy = load_pack<T, kWidth>(args.dy, at);
  Pack<T, kWidth> dgate, dup, y;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    const float g = to_float(gate.values[j]);
    const float u = to_float(up.values[j]);
    const float d = to_float(dy.values[j]);
    const float s = sigmoid(g);
    const float silu = g * s;
    dup.values[j] = from_float<T>(d * silu);
    dgate.values[j] = from_float<T>(d * u * fmaf(silu, 1.0f - s, s));
    y.values[j] = from_float<T>(silu * u);
  }
  store_pack(args.dgate, at, dgate);
  store_pack(args.dup, at, dup);
  if (args.y != nullptr) store_pack(args.y, at, y);
}

template <typename T, int kWidth, typename Kind>
__global__ void __launch_bounds__(kThreads) gelu_forward(GeluForward args) {
  const int64_t at = first_element<kWidth>(args.numel);
  if (at < 0) return;
  const auto x = load_pack<T, kWidth>(args.x, at);
  Pack<T, kWidth> y;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) y.values[j] = from_float<T>(Kind::value(to_float(x.values[j])));
  store_pack(args.y, at, y);
}

template <typename T, int kWidth, typename Kind>
__global__ void __launch_bounds__(kThreads) gelu_backward_kernel(GeluBackward args) {
  const int64_t at = first_element<kWidth>(args.numel);
  if (at < 0) return;
  const auto x = load_pack<T, kWidth>(args.x, at);
  const auto dy = load_pack<T, kWidth>(args.dy, at);
  Pack<T, kWidth> dx;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    dx.values[j] = from_float<T>(to_float(dy.values[j]) * Kind::slope(to_float(x.values[j])));
  }
  store_pack(args.dx, at, dx);
}

// launch(Tag<T>, Number<width>, blocks).
template <typename Launch>
void with_width(DType dtype, int64_t numel, bool aligned, const char* kernel, const Launch& launch) {
  if (numel == 0) return;
  with_type(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if (aligned && numel % kWidest<T> == 0) {
      launch(tag, Number<kWidest<T>>(), blocks_for(numel / kWidest<T>, kThreads));
    } else {
      launch(tag, Number<1>(), blocks_for(numel, kThreads));
    }
  });
  check_launch(kernel);
}

}  // namespace

void swiglu(const SwigluForward& args, Stream stream) {
  with_width(args.dtype, args.numel, all_aligned(args.gate, args.up, args.y), "swiglu",
             [&](auto tag, auto width, unsigned blocks) {
               using T = typename decltype(tag)::Type;
               swiglu_forward<T, decltype(width)::value><<<blocks, kThreads, 0, stream_of(stream)>>>(args);
             });
}

void swiglu_backward(const SwigluBackward& args, Stream stream) {
  const bool aligned = all_aligned(args.gate, args.up, args.dy, args.dgate, args.dup, args.y);
  with_width(args.dtype, args.numel, aligned, "swiglu_backward", [&](auto tag, auto width, unsigned blocks) {
    using T = typename decltype(tag)::Type;
    swiglu_backward_kernel<T, decltype(width)::value><<<blocks, kThreads, 0, stream_of(stream)>>>(args);
  });
}

void gelu(const GeluForward& args, Stream stream) {
  with_width(args.dtype, args.numel, all_aligned(args.x, args.y), "gelu", [&](auto tag, auto width, unsigned blocks) {
    using T = typename decltype(tag)::Type;
    if (args.kind == Gelu::tanh) {
      gelu_forward<T, decltype(width)::value, TanhGelu><<<blocks, kThreads, 0, stream_of(stream)>>>(args);
    } else {
      gelu_forward<T, decltype(width)::value, ExactGelu><<<blocks, kThreads, 0, stream_of(stream)>>>(args);
    }
  });
}

void gelu_backward(const GeluBackward& args, Stream stream) {
  with_width(
      args.dtype, args.numel, all_aligned(args.x, args.dy, args.dx), "gelu_backward",
      [&](auto tag, auto width, unsigned blocks) {
        using T = typename decltype(tag)::Type;
        if (args.kind == Gelu::tanh) {
          gelu_backward_kernel<T, decltype(width)::value, TanhGelu><<<blocks, kThreads, 0, stream_of(stream)>>>(args);
        } else {
          gelu_backward_kernel<T, decltype(width)::value, ExactGelu><<<blocks, kThreads, 0, stream_of(stream)>>>(args);
        }
      });
}

}  // namespace shoal::kernels::cuda
