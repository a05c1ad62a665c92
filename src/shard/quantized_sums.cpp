// See quantized_sums.h.
#include "shard/quantized_sums.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/group/reduction.h"
#include "kernels/reduce.h"

namespace shoal {

namespace {

// Elements that are folded at a time, so that what is back in fp32 meanwhile stays in the cache.
constexpr int64_t kTileNumel = 16 * kBlockNumel;

size_t second_half(int64_t numel) { return static_cast<size_t>(numel) * sizeof(float) / 2; }

// The slices of the ranks lie one after the other.
void fold_blocks(const std::byte* received, int ranks, const Hop& hop, const ReduceScatter& args) {
  std::vector<float> tile(static_cast<size_t>(kTileNumel * ranks));
  std::vector<const void*> sources(static_cast<size_t>(ranks));
  kernels::OrderedFold fold = fold_of(args);
  fold.source_dtype = DType::f32;
  fold.source_count = ranks;
  fold.sources = sources.data();
  auto* const out = static_cast<std::byte*>(args.shard);
  for (int64_t begin = 0; begin < hop.part_numel; begin += kTileNumel) {
    fold.numel = std::min(kTileNumel, hop.part_numel - begin);
    for (int rank = 0; rank < ranks; ++rank) {
      float* const values = tile.data() + kTileNumel * rank;
      const std::byte* slice = received + hop.wire.nbytes(hop.part_numel) * static_cast<size_t>(rank);
      kernels::dequantize(slice + hop.wire.nbytes(begin), hop.wire.bits, values, DType::f32, fold.numel);
      sources[static_cast<size_t>(rank)] = values;
    }
    fold.out = out + static_cast<size_t>(begin) * nbytes_of(args.shard_dtype);
    kernels::ordered_fold(fold);
  }
}

}  // namespace

void quantize_sums(std::byte* sums, int64_t numel, int bits, const kernels::ErrorFeedback& feedback) {
  auto* const values = reinterpret_cast<float*>(sums);
  if (feedback.errors == nullptr) return kernels::quantize(values, DType::f32, numel, bits, sums);
  kernels::quantize_with_errors(values, numel, bits, sums, feedback);
}

Handle exchange_quantized(const Hop& hop, Group& group, ReduceScatter last, const std::shared_ptr<Slab>& sums) {
  const int ranks = group.size();
  const int64_t numel = hop.part_numel * ranks;
  SHOAL_CHECK(hop.part_numel % kBlockNumel == 0 && hop.wire.nbytes(numel) <= second_half(numel),
              "parts of {} elements are not whole blocks", hop.part_numel);
  SHOAL_CHECK(last.groups.size == 0 && last.whole_dtype == DType::f32, "sums that travel are those of groups, in fp32");
  std::byte* const received = sums->data() + second_half(numel);
  Exchange args;
  args.subject = last.subject;
  args.slices = sums->data();
  args.slice_nbytes = hop.wire.nbytes(hop.part_numel);
  args.received = received;
  args.piece_nbytes = static_cast<size_t>(last.piece_numel) * sizeof(float);
  args.keep = std::make_shared<std::pair<std::shared_ptr<const void>, std::shared_ptr<Slab>>>(last.keep, sums);
  args.after = [received, ranks, hop, last = std::move(last)] {
    fold_blocks(received, ranks, hop, last);
    if (last.after) last.after();
  };
  return group.exchange(std::move(args));
}

}  // namespace shoal
