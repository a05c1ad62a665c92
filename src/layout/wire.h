// The form in which elements travel between ranks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shoal/dtype.h"

namespace shoal {

// [Note: blocks]
// Elements that are quantized on their way travel in blocks of 128: an fp32 scale, then 128 numbers of 8 or of 4 bits.
// 128 elements are what every parameter and every part of a flat begins at a multiple of (kAlignNumel), so a block
// belongs to one parameter and to one rank, however many ranks there are, and how a flat is cut does not show in the
// numbers. The scale is fp32 so that the largest element of a block is exact to its last bits whatever its exponent;
// it costs 1/32 of a byte an element.
inline constexpr int64_t kBlockNumel = 128;
constexpr size_t block_nbytes(int bits) { return sizeof(float) + static_cast<size_t>(kBlockNumel * bits / 8); }

// Each element by itself, in a dtype; or elements that have this dtype at both ends, in blocks.
struct Wire {
  DType dtype = DType::f32;
  int bits = 0;  // of an element in a block, 8 or 4; 0: there are no blocks

  bool is_blocks() const { return bits > 0; }
  // Of a part; parts begin where blocks do.
  size_t nbytes(int64_t numel) const {
    if (!is_blocks()) return static_cast<size_t>(numel) * nbytes_of(dtype);
    return static_cast<size_t>((numel + kBlockNumel - 1) / kBlockNumel) * block_nbytes(bits);
  }
  bool operator==(const Wire& other) const { return dtype == other.dtype && bits == other.bits; }  // nvcc reads C++17
};

}  // namespace shoal
