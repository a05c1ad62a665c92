// Element conversions on spans, and the split of an fp32 value into a bf16 weight and its 16-bit remainder.
#pragma once

#include <bit>
#include <cstdint>

#include "shoal/dtype.h"

namespace shoal::kernels {

// [Note: the split master]
// A bf16 weight is the fp32 master rounded to its high half with ties away from zero; the low half is stored beside
// it. The rounding carried one into the high half exactly when the low half's top bit is set, so both together give
// back every fp32 value, bit for bit. (Under ties to even that test would be ambiguous.)
// A NaN is stored as the one whose low half is zero: the high half of 0x7fffffff, which GPUs make, would round to minus
// zero, a weight that hides that its master is lost.
// No master rounds to a zero whose remainder has its top bit set, but users write zeros into weights and leave the
// remainder: such a master is that zero, where the two halves together would be a NaN.
inline uint16_t split_weight(float master) {
  return static_cast<uint16_t>(((master == master ? std::bit_cast<uint32_t>(master) : 0x7fc00000u) + 0x8000u) >> 16);
}
inline uint16_t split_remainder(float master) {
  return master == master ? static_cast<uint16_t>(std::bit_cast<uint32_t>(master)) : uint16_t{0};
}
inline float join_master(uint16_t weight, uint16_t remainder) {
  if ((weight & 0x7fffu) == 0 && remainder >> 15 != 0) remainder = 0;
  const uint32_t high = static_cast<uint32_t>(weight) - (remainder >> 15);
  return std::bit_cast<float>((high << 16) | remainder);
}

// out = round-to-nearest-even(in), any pair of dtypes; spans may not overlap unless they are equal.
void convert(const void* in, DType in_dtype, void* out, DType out_dtype, int64_t numel);

// out[i] = round(fp32(out[i]) + fp32(in[i])), any pair of dtypes.
void add(const void* in, DType in_dtype, void* out, DType out_dtype, int64_t numel);

// Splits fp32 masters into bf16 weights and remainders, and back.
void split(const float* master, void* weight, void* remainder, int64_t numel);
void join(const void* weight, const void* remainder, float* master, int64_t numel);

}  // namespace shoal::kernels
