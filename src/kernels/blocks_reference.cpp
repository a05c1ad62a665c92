// The contract of blocks, one element at a time. The other versions must give these bits.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/blocks.h"
#include "kernels/element.h"
#include "kernels/isa_parts.h"

namespace shoal::kernels {
namespace {

struct PlainBlock {
  float scale = 0;
  int numbers[kBlockNumel] = {};
};

PlainBlock plain_block(const float* x, int bits) {
  PlainBlock block;
  const float most_number = bits == 8 ? 127 : 7;
  float most = 0;
  for (int64_t i = 0; i < kBlockNumel; ++i) {
    if (!std::isfinite(x[i])) {
      block.scale = std::numeric_limits<float>::quiet_NaN();
      return block;
    }
    most = std::max(most, std::fabs(x[i]));
  }
  block.scale = std::max(most / most_number, 0x1p-126f);
  if (std::isinf(block.scale * most_number)) block.scale = std::nextafter(block.scale, 0.0f);
  const float inverse = 1.0f / block.scale;
  for (int64_t i = 0; i < kBlockNumel; ++i) block.numbers[i] = static_cast<int>(std::nearbyint(x[i] * inverse));
  return block;
}

void put(const PlainBlock& block, int bits, unsigned char* to) {
  std::memcpy(to, &block.scale, sizeof(float));
  to += sizeof(float);
  for (int64_t i = 0; i < kBlockNumel; ++i) {
    const auto number = static_cast<unsigned char>(block.numbers[i]);
    if (bits == 8) {
      to[i] = number;
    } else if (i < kBlockNumel / 2) {
      to[i] = number & 15;
    } else {
      to[i - kBlockNumel / 2] |= static_cast<unsigned char>(number << 4);
    }
  }
}

PlainBlock take(const unsigned char* from, int bits) {
  PlainBlock block;
  std::memcpy(&block.scale, from, sizeof(float));
  from += sizeof(float);
  for (int64_t i = 0; i < kBlockNumel; ++i) {
    if (bits == 8) {
      block.numbers[i] = static_cast<signed char>(from[i]);
      continue;
    }
    const int half = i < kBlockNumel / 2 ? from[i] & 15 : from[i - kBlockNumel / 2] >> 4;
    block.numbers[i] = half < 8 ? half : half - 16;
  }
  return block;
}

int64_t count_of(int64_t at, int64_t numel) { return std::min(kBlockNumel, numel - at); }

void plain_quantize(const void* values, DType dtype, int64_t numel, int bits, void* blocks) {
  auto* to = static_cast<unsigned char*>(blocks);
  for (int64_t at = 0; at < numel; at += kBlockNumel, to += block_nbytes(bits)) {
    float x[kBlockNumel] = {};
    for (int64_t i = 0; i < count_of(at, numel); ++i) x[i] = load_element(values, dtype, at + i);
    put(plain_block(x, bits), bits, to);
  }
}

void plain_dequantize(const void* blocks, int bits, void* values, DType dtype, int64_t numel) {
  const auto* from = static_cast<const unsigned char*>(blocks);
  for (int64_t at = 0; at < numel; at += kBlockNumel, from += block_nbytes(bits)) {
    const PlainBlock block = take(from, bits);
    for (int64_t i = 0; i < count_of(at, numel); ++i) {
      store_element(values, dtype, at + i, static_cast<float>(block.numbers[i]) * block.scale);
    }
  }
}

void plain_quantize_with_errors(const float* values, int64_t numel, int bits, void* blocks,
                                const ErrorFeedback& feedback) {
  auto* to = static_cast<unsigned char*>(blocks);
  for (int64_t at = 0; at < numel; at += kBlockNumel, to += block_nbytes(bits)) {
    float x[kBlockNumel] = {}, error[kBlockNumel] = {};
    for (int64_t i = 0; i < count_of(at, numel); ++i) {
      if (!feedback.forgets) error[i] = load_element(feedback.errors, DType::bf16, at + i);
      x[i] = values[at + i] + error[i];
    }
    const PlainBlock block = plain_block(x, bits);
    put(block, bits, to);
    for (int64_t i = 0; i < count_of(at, numel); ++i) {
      if (std::isfinite(block.scale)) {
        const float lost = x[i] - static_cast<float>(block.numbers[i]) * block.scale;
        error[i] = feedback.keep * error[i] + (1.0f - feedback.keep) * lost;
      }
      store_element(feedback.errors, DType::bf16, at + i, error[i]);
    }
  }
}

}  // namespace

BlockKernels blocks_reference() { return {plain_quantize, plain_dequantize, plain_quantize_with_errors}; }

}  // namespace shoal::kernels
