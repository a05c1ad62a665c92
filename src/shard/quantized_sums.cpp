// See quantized_sums.h.
#include "shard/quantized_sums.h"

#include <utility>

#include "base/check.h"
#include "comm/group/reduction.h"

namespace shoal {

namespace {

size_t second_half(int64_t numel) { return static_cast<size_t>(numel) * sizeof(float) / 2; }

// Of the slices of all ranks, which lie one after the other.
kernels::BlockFold fold_of_blocks(const std::byte* received, int ranks, const Hop& hop, const ReduceScatter& args) {
  kernels::BlockFold blocks{.slices = received,
                            .slice_nbytes = hop.wire.nbytes(hop.part_numel),
                            .bits = hop.wire.bits,
                            .fold = fold_of(args)};
  blocks.fold.source_dtype = DType::f32;
  blocks.fold.source_count = ranks;
  return blocks;
}

}  // namespace

void quantize_sums(const SumsOnWay& sums, int64_t numel, int bits) {
  std::byte* const memory = sums.memory->data();
  sums.queue->quantize(memory, DType::f32, numel, bits, memory, sums.feedback);
}

Handle exchange_quantized(const Hop& hop, Group& group, ReduceScatter last, const SumsOnWay& sums) {
  const int ranks = group.size();
  const int64_t numel = hop.part_numel * ranks;
  SHOAL_CHECK(hop.part_numel % kBlockNumel == 0 && hop.wire.nbytes(numel) <= second_half(numel),
              "parts of {} elements are not whole blocks", hop.part_numel);
  SHOAL_CHECK(last.groups.size == 0 && last.whole_dtype == DType::f32, "sums that travel are those of groups, in fp32");
  std::byte* const received = sums.memory->data() + second_half(numel);
  Exchange args;
  args.subject = last.subject;
  args.slices = sums.memory->data();
  args.slice_nbytes = hop.wire.nbytes(hop.part_numel);
  args.received = received;
  args.piece_nbytes = static_cast<size_t>(last.piece_numel) * sizeof(float);
  args.keep = std::make_shared<std::pair<std::shared_ptr<const void>, std::shared_ptr<Slab>>>(last.keep, sums.memory);
  args.after = [received, ranks, hop, queue = sums.queue, last = std::move(last)] {
    queue->fold_blocks(fold_of_blocks(received, ranks, hop, last));
    if (last.after) last.after();
  };
  return group.exchange(std::move(args));
}

}  // namespace shoal
