// See convert.h; the contract is kernels/convert_reference.cpp.
#include "kernels/cuda/convert.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/span.cuh"

namespace shoal::kernels::cuda {
namespace {

template <DType in_dtype, DType out_dtype>
struct Convert {
  const void* in;
  void* out;
  template <class A>
  __device__ void operator()(const A& access) const {
    float values[kPack];
    load_floats<in_dtype>(access, in, values);
    store_floats<out_dtype>(access, out, values);
  }
};

template <DType in_dtype, DType out_dtype>
struct Add {
  const void* in;
  void* out;
  template <class A>
  __device__ void operator()(const A& access) const {
    float values[kPack], sums[kPack];
    load_floats<in_dtype>(access, in, values);
    load_floats<out_dtype>(access, out, sums);
#pragma unroll
    for (int k = 0; k < kPack; ++k) sums[k] = __fadd_rn(sums[k], values[k]);
    store_floats<out_dtype>(access, out, sums);
  }
};

struct Split {
  const float* master;
  void *weight, *remainder;
  template <class A>
  __device__ void operator()(const A& access) const {
    float values[kPack];
    uint16_t high[kPack], low[kPack];
    access.load(master, values);
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      high[k] = high_half(values[k]);
      low[k] = low_half(values[k]);
    }
    access.store(weight, high);
    access.store(remainder, low);
  }
};

struct Join {
  const void *weight, *remainder;
  float* master;
  template <class A>
  __device__ void operator()(const A& access) const {
    uint16_t high[kPack], low[kPack];
    float values[kPack];
    access.load(weight, high);
    access.load(remainder, low);
#pragma unroll
    for (int k = 0; k < kPack; ++k) values[k] = whole_of(high[k], low[k]);
    access.store(master, values);
  }
};

template <class Body>
void launch(const Body& body, int64_t numel, const AlignmentFinder& finder, Stream stream, const char* name) {
  launch_span(body, numel, finder.found(), stream_of(stream));
  check_launch(name);
}

template <template <DType, DType> class Body, DType in_dtype>
void launch_by_out(const void* in, void* out, DType out_dtype, int64_t numel, Stream stream, const char* name) {
  AlignmentFinder finder;
  finder.add(in, nbytes_of(in_dtype));
  finder.add(out, nbytes_of(out_dtype));
  switch (out_dtype) {
    case DType::f32: return launch(Body<in_dtype, DType::f32>{in, out}, numel, finder, stream, name);
    case DType::bf16: return launch(Body<in_dtype, DType::bf16>{in, out}, numel, finder, stream, name);
    case DType::f16: return launch(Body<in_dtype, DType::f16>{in, out}, numel, finder, stream, name);
  }
}

template <template <DType, DType> class Body>
void launch_by_dtypes(const void* in, DType in_dtype, void* out, DType out_dtype, int64_t numel, Stream stream,
                      const char* name) {
  SHOAL_CHECK_GE(numel, 0);
  // Threads run in no order: one may write where another has yet to read, unless elements lie at the same places.
  SHOAL_CHECK(numel == 0 || in != out || nbytes_of(in_dtype) == nbytes_of(out_dtype), "({} to {} in place)",
              name_of(in_dtype), name_of(out_dtype));
  switch (in_dtype) {
    case DType::f32: return launch_by_out<Body, DType::f32>(in, out, out_dtype, numel, stream, name);
    case DType::bf16: return launch_by_out<Body, DType::bf16>(in, out, out_dtype, numel, stream, name);
    case DType::f16: return launch_by_out<Body, DType::f16>(in, out, out_dtype, numel, stream, name);
  }
}

}  // namespace

void convert(const void* in, DType in_dtype, void* out, DType out_dtype, int64_t numel, Stream stream) {
  if (in_dtype != out_dtype) {
    return launch_by_dtypes<Convert>(in, in_dtype, out, out_dtype, numel, stream, "convert");
  }
  SHOAL_CHECK_GE(numel, 0);
  if (numel == 0 || in == out) return;
  const size_t nbytes = static_cast<size_t>(numel) * nbytes_of(in_dtype);
  check_cuda(cudaMemcpyAsync(out, in, nbytes, cudaMemcpyDeviceToDevice, stream_of(stream)), "convert (a copy)");
}

void add(const void* in, DType in_dtype, void* out, DType out_dtype, int64_t numel, Stream stream) {
  launch_by_dtypes<Add>(in, in_dtype, out, out_dtype, numel, stream, "add");
}

void split(const float* master, void* weight, void* remainder, int64_t numel, Stream stream) {
  SHOAL_CHECK_GE(numel, 0);
  AlignmentFinder finder;
  finder.add(master, 4);
  finder.add(weight, 2);
  finder.add(remainder, 2);
  launch(Split{master, weight, remainder}, numel, finder, stream, "split");
}

void join(const void* weight, const void* remainder, float* master, int64_t numel, Stream stream) {
  SHOAL_CHECK_GE(numel, 0);
  AlignmentFinder finder;
  finder.add(master, 4);
  finder.add(weight, 2);
  finder.add(remainder, 2);
  launch(Join{weight, remainder, master}, numel, finder, stream, "join");
}

}  // namespace shoal::kernels::cuda
