// The contract of the conversions, one element at a time. The other versions must give these bits.
#include <cstring>

#include "kernels/element.h"
#include "kernels/isa_parts.h"

namespace shoal::kernels {
namespace {

void plain_convert(const void* in, DType in_dtype, void* out, DType out_dtype, int64_t numel) {
  if (in_dtype == out_dtype) {
    if (numel > 0) std::memmove(out, in, static_cast<size_t>(numel) * nbytes_of(in_dtype));
    return;
  }
  for (int64_t i = 0; i < numel; ++i) store_element(out, out_dtype, i, load_element(in, in_dtype, i));
}

void plain_add(const void* in, DType in_dtype, void* out, DType out_dtype, int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) {
    store_element(out, out_dtype, i, load_element(out, out_dtype, i) + load_element(in, in_dtype, i));
  }
}

void plain_split(const float* master, void* weight, void* remainder, int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) {
    const float value = master[i];
    static_cast<uint16_t*>(weight)[i] = split_weight(value);
    static_cast<uint16_t*>(remainder)[i] = split_remainder(value);
  }
}

void plain_join(const void* weight, const void* remainder, float* master, int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) {
    master[i] = join_master(static_cast<const uint16_t*>(weight)[i], static_cast<const uint16_t*>(remainder)[i]);
  }
}

}  // namespace

ConvertKernels convert_reference() { return {plain_convert, plain_add, plain_split, plain_join}; }

}  // namespace shoal::kernels
