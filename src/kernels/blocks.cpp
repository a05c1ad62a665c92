// The doors of blocks.h: check the arguments once, then run the version that this machine uses.
#include "kernels/blocks.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/isa.h"

namespace shoal::kernels {

namespace {

// Elements that are folded at a time, so that what is back in fp32 meanwhile stays in the cache.
constexpr int64_t kTileNumel = 16 * kBlockNumel;

void check(int64_t numel, int bits) {
  SHOAL_CHECK_GE(numel, 0);
  SHOAL_CHECK(bits == 8 || bits == 4, "blocks of {} bits", bits);
}

}  // namespace

void quantize(const void* values, DType dtype, int64_t numel, int bits, void* blocks) {
  check(numel, bits);
  active_kernels().blocks.quantize(values, dtype, numel, bits, blocks);
}

void dequantize(const void* blocks, int bits, void* values, DType dtype, int64_t numel) {
  check(numel, bits);
  active_kernels().blocks.dequantize(blocks, bits, values, dtype, numel);
}

void quantize_with_errors(const float* values, int64_t numel, int bits, void* blocks, const ErrorFeedback& feedback) {
  check(numel, bits);
  SHOAL_CHECK(feedback.errors != nullptr || numel == 0, "no memory for errors");
  active_kernels().blocks.quantize_with_errors(values, numel, bits, blocks, feedback);
}

void check(const BlockFold& args) {
  check(args.fold);
  check(args.fold.numel, args.bits);
  SHOAL_CHECK(args.fold.group == 0 && args.fold.source_dtype == DType::f32, "a fold of blocks by groups, or of {}",
              name_of(args.fold.source_dtype));
}

void fold_blocks(const BlockFold& args) {
  check(args);
  const Wire wire{DType::f32, args.bits};
  OrderedFold fold = args.fold;
  std::vector<float> tile(static_cast<size_t>(kTileNumel * fold.source_count));
  std::vector<const void*> sources(static_cast<size_t>(fold.source_count));
  fold.sources = sources.data();
  for (int64_t begin = 0; begin < args.fold.numel; begin += kTileNumel) {
    fold.numel = std::min(kTileNumel, args.fold.numel - begin);
    for (int source = 0; source < fold.source_count; ++source) {
      float* const values = tile.data() + kTileNumel * source;
      const auto* slice =
          static_cast<const unsigned char*>(args.slices) + args.slice_nbytes * static_cast<size_t>(source);
      dequantize(slice + wire.nbytes(begin), args.bits, values, DType::f32, fold.numel);
      sources[static_cast<size_t>(source)] = values;
    }
    fold.out = static_cast<unsigned char*>(args.fold.out) + static_cast<size_t>(begin) * nbytes_of(fold.out_dtype);
    ordered_fold(fold);
  }
}

}  // namespace shoal::kernels
