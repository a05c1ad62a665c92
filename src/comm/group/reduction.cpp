// See reduction.h.
#include "comm/group/reduction.h"

#include "comm/group/slices.h"

namespace shoal {

namespace {

std::byte* bytes_at(const void* data, size_t offset = 0) {
  return static_cast<std::byte*>(const_cast<void*>(data)) + offset;
}

// Whether every element of a sum over one rank is its own mean.
bool changes_nothing(const ReduceScatter& args) {
  const bool in_place = args.shard == args.whole && args.shard_dtype == args.whole_dtype && args.carry == 0;
  return in_place && args.post == 1.0f;
}

// Adds a part of the strips of all ranks, in `order`; `fold.out` is where the strip's sum begins.
void add_part(Carrier& carrier, kernels::OrderedFold fold, const Exchange::Part& part,
              const std::vector<int>& order = {}) {
  const size_t element = nbytes_of(fold.source_dtype), begin = part.begin / element;
  std::vector<const void*> in_order;
  for (const int rank : order) in_order.push_back(part.sources[rank]);
  fold.sources = order.empty() ? part.sources : in_order.data();
  fold.source_count = carrier.size();
  fold.out = bytes_at(fold.out, begin * nbytes_of(fold.out_dtype));
  if (fold.open != nullptr) fold.open += begin;
  fold.numel = static_cast<int64_t>(part.nbytes / element);
  carrier.sum(fold);
}

}  // namespace

kernels::OrderedFold fold_of(const ReduceScatter& args) {
  kernels::OrderedFold fold;
  fold.source_dtype = args.whole_dtype;
  fold.out = args.shard;
  fold.out_dtype = args.shard_dtype;
  fold.rounding = args.rounding.value_or(args.shard_dtype);
  fold.numel = args.shard_numel;
  fold.carry = args.carry;
  fold.post = args.post;
  fold.group = args.groups.size;
  fold.before = args.groups.before;
  fold.open = args.groups.open;
  fold.closes = args.groups.closes;
  return fold;
}

ReduceScatter reduction_of(const AllReduce& args) {
  ReduceScatter reduce;
  reduce.subject = args.subject;
  reduce.whole = reduce.shard = args.data;
  reduce.whole_dtype = reduce.shard_dtype = args.dtype;
  reduce.shard_numel = args.numel;
  reduce.post = args.post;
  return reduce;
}

void reduce_scatter(Carrier& carrier, const Ticket& ticket, const ReduceScatter& args) {
  if (OwnSums* own = carrier.own_sums()) return own->reduce_scatter(ticket, args);
  const size_t strip_nbytes = static_cast<size_t>(args.shard_numel) * nbytes_of(args.whole_dtype);
  const size_t whole_nbytes = strip_nbytes * static_cast<size_t>(carrier.size());
  const bool idle = carrier.size() == 1 && changes_nothing(args);
  carrier.exchange(ticket, {bytes_at(args.whole), whole_nbytes, strip_nbytes, carrier.size()},
                   [&](const Exchange::Part& part) {
                     if (!idle) add_part(carrier, fold_of(args), part, args.order);
                   });
}

void all_reduce(Carrier& carrier, const Ticket& ticket, const AllReduce& args) {
  if (OwnSums* own = carrier.own_sums()) return own->all_reduce(ticket, args);
  if (carrier.size() == 1) return reduce_scatter(carrier, ticket, reduction_of(args));
  const size_t element = nbytes_of(args.dtype);
  const size_t nbytes = static_cast<size_t>(args.numel) * element;
  kernels::OrderedFold fold = fold_of(reduction_of(args));
  if (nbytes <= carrier.most_nbytes_summed_alone()) {
    // Apart from the memory that the peers still read; the result is taken over when all have read.
    std::byte* sum = carrier.scratch(nbytes);
    fold.out = sum;
    carrier.exchange(ticket, {bytes_at(args.data), nbytes, nbytes, 1},
                     [&](const Exchange::Part& part) { add_part(carrier, fold, part); });
    carrier.copy(args.data, sum, nbytes);
    return;
  }
  // Each rank sums its strip, in place, as nobody else reads that strip of its memory; then all get all strips.
  const size_t strip_nbytes = static_cast<size_t>(slice_stride(args.numel, carrier.size())) * element;
  std::byte* own =
      bytes_at(args.data, static_cast<size_t>(slice_of(args.numel, carrier.size(), carrier.rank()).begin) * element);
  fold.out = own;
  carrier.exchange(ticket, {bytes_at(args.data), nbytes, strip_nbytes, carrier.size()},
                   [&](const Exchange::Part& part) { add_part(carrier, fold, part); });
  carrier.all_gather(ticket, {own, bytes_at(args.data), strip_nbytes, nbytes});
}

}  // namespace shoal
