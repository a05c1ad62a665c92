// Where an update finds the fp32 value of a weight and puts the new one, on the device.
#pragma once

#include "kernels/cuda/element.cuh"
#include "kernels/update.h"

namespace shoal::kernels::cuda {
namespace {

// The weight is fp32 itself.
struct OwnMaster {
  template <class A>
  __device__ static void load(const A& access, const void* weight, const void*, float (&p)[kPack]) {
    access.load(weight, p);
  }
  template <class A>
  __device__ static void store(const A& access, void* weight, void*, const float (&p)[kPack]) {
    access.store(weight, p);
  }
};

// See [Note: the split master] in kernels/convert.h.
struct SplitMaster {
  template <class A>
  __device__ static void load(const A& access, const void* weight, const void* master, float (&p)[kPack]) {
    uint16_t high[kPack], low[kPack];
    access.load(weight, high);
    access.load(master, low);
#pragma unroll
    for (int k = 0; k < kPack; ++k) p[k] = whole_of(high[k], low[k]);
  }
  template <class A>
  __device__ static void store(const A& access, void* weight, void* master, const float (&p)[kPack]) {
    uint16_t high[kPack], low[kPack];
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      high[k] = high_half(p[k]);
      low[k] = low_half(p[k]);
    }
    access.store(weight, high);
    access.store(master, low);
  }
};

template <DType weight_dtype>
struct FullMaster {
  template <class A>
  __device__ static void load(const A& access, const void*, const void* master, float (&p)[kPack]) {
    access.load(master, p);
  }
  template <class A>
  __device__ static void store(const A& access, void* weight, void* master, const float (&p)[kPack]) {
    access.store(master, p);
    store_floats<weight_dtype>(access, weight, p);
  }
};

// The same with everything known at run time only, for update_narrow_kernel.
template <class A>
__device__ inline void load_master(const A& access, DType weight_dtype, Master kind, const void* weight,
                                   const void* master, float (&p)[kPack]) {
  switch (kind) {
    case Master::weight: return OwnMaster::load(access, weight, master, p);
    case Master::remainder: return SplitMaster::load(access, weight, master, p);
    case Master::full: return access.load(master, p);
    case Master::none: return load_floats(access, weight_dtype, weight, p);
  }
}
template <class A>
__device__ inline void store_master(const A& access, DType weight_dtype, Master kind, void* weight, void* master,
                                    const float (&p)[kPack]) {
  if (kind == Master::remainder) return SplitMaster::store(access, weight, master, p);
  if (kind == Master::full) access.store(master, p);
  store_floats(access, weight_dtype, weight, p);
}

}  // namespace
}  // namespace shoal::kernels::cuda
