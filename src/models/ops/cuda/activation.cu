// See activation.h.
#include "models/ops/cuda/activation.h"

#include "models/ops/cuda/fast_math.cuh"
#include "models/ops/cuda/pack.cuh"

namespace shoal::models::ops::cuda {

namespace {

constexpr int kThreads = 256;

// 1 / (1 + exp(-x)), right to a few units in the last place; 0 and 1 far out.
__device__ __forceinline__ float sigmoid(float x) { return reciprocal_fast(1.0f + exp2_fast(-kLog2E * x)); }

// Each of these computes one element.
struct SwigluStep {
  static __device__ __forceinline__ float value(float gate, float up) { return gate * sigmoid(gate) * up; }
};

// The tanh form by the identity (1 + tanh(u)) / 2 = sigmoid(2 u).
constexpr float kTwoRootTwoOverPi = 1.5957691216057308f;
constexpr float kCubic = 0.044715f;
struct TanhGelu {
  static __device__ __forceinline__ float sigmoid_of(float x, float square) {
    const float power = x * fmaf(square, -kLog2E * kTwoRootTwoOverPi * kCubic, -kLog2E * kTwoRootTwoOverPi);
    return reciprocal_fast(1.0f + exp2_fast(power));
  }
  static __device__ __forceinline__ float value(float x) { return x * sigmoid_of(x, x * x); }
  static __device__ __forceinline__ float slope(float x) {
    const float square = x * x;
    const float s = sigmoid_of(x, square);
    const float inner = fmaf(square, 3.0f * kTwoRootTwoOverPi * kCubic, kTwoRootTwoOverPi);
    return fmaf(x * inner, fmaf(-s, s, s), s);
  }
};

// The exact form. With bell = exp(-x^2 / 2), the normal distribution's tail beyond |x| is bell * t * p(t), where
// t = 1 / (1 + 0.3 |x|) and p is the polynomial of degree 7 of least relative error from 0 to 14: 1.5e-7.
constexpr float kDensityAtZero = 0.39894228040143268f;
struct ExactGelu {
  static __device__ __forceinline__ float bell(float x) { return exp2_fast(x * (-0.5f * kLog2E) * x); }
  static __device__ __forceinline__ float tail(float x, float bell) {
    const float t = reciprocal_fast(fmaf(fabsf(x), 0.3f, 1.0f));
    float p = 0.035674546f;
    p = fmaf(p, t, -0.15720205f);
    p = fmaf(p, t, 0.20635161f);
    p = fmaf(p, t, -0.053681821f);
    p = fmaf(p, t, 0.12856063f);
    p = fmaf(p, t, 0.099913806f);
    p = fmaf(p, t, 0.12075391f);
    p = fmaf(p, t, 0.11962931f);
    return p * (t * bell);
  }
  static __device__ __forceinline__ float value(float x) { return fmaf(-fabsf(x), tail(x, bell(x)), fmaxf(x, 0.0f)); }
  static __device__ __forceinline__ float slope(float x) {
    const float bell_of_x = bell(x);
    const float beyond = tail(x, bell_of_x);
    return fmaf(x * kDensityAtZero, bell_of_x, x < 0 ? beyond : 1.0f - beyond);
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
  Held<T, kWidth> held;
  held.load(args.x, at);
  float values[kWidth];
  held.to_floats(values);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) values[j] = Kind::value(values[j]);
  held.round_from(values);
  held.store(args.y, at);
}

template <typename T, int kWidth, typename Kind>
__global__ void __launch_bounds__(kThreads) gelu_backward_kernel(GeluBackward args) {
  const int64_t at = first_element<kWidth>(args.numel);
  if (at < 0) return;
  Held<T, kWidth> held_x, held_dy;
  held_x.load(args.x, at);
  held_dy.load(args.dy, at);
  float x[kWidth], dx[kWidth];
  held_x.to_floats(x);
  held_dy.to_floats(dx);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) dx[j] *= Kind::slope(x[j]);
  held_dy.round_from(dx);
  held_dy.store(args.dx, at);
}

// launch(Tag<T>, Number<width>, blocks), where a thread has a pack.
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
  with_width(args.dtype, args.numel, all_aligned(args.x, args.y), "gelu",
             [&](auto tag, auto width, unsigned blocks) {
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

}  // namespace shoal::models::ops::cuda
