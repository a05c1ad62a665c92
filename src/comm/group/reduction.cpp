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
  const bool in_place = args.shard == args.whole && args.shard_dtype == args.whole_dtype && !args.accumulate;
  return in_place && args.pre == 1.0f && args.post == 1.0f;
}

// Adds a part of the strips of all ranks; `mean.out` is where the strip's sum begins.
void add_part(Carrier& carrier, kernels::OrderedMean mean, const Exchange::Part& part) {
  const size_t element = nbytes_of(mean.source_dtype);
  mean.sources = part.sources;
  mean.source_count = carrier.size();
  mean.out = bytes_at(mean.out, part.begin / element * nbytes_of(mean.out_dtype));
  mean.numel = static_cast<int64_t>(part.nbytes / element);
  carrier.sum(mean);
}

}  // namespace

kernels::OrderedMean mean_of(const ReduceScatter& args) {
  kernels::OrderedMean mean;
  mean.source_dtype = args.whole_dtype;
  mean.out = args.shard;
  mean.out_dtype = args.shard_dtype;
  mean.numel = args.shard_numel;
  mean.pre = args.pre;
  mean.post = args.post;
  mean.accumulate = args.accumulate;
  return mean;
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
                     if (!idle) add_part(carrier, mean_of(args), part);
                   });
}

void all_reduce(Carrier& carrier, const Ticket& ticket, const AllReduce& args) {
  if (OwnSums* own = carrier.own_sums()) return own->all_reduce(ticket, args);
  if (carrier.size() == 1) return reduce_scatter(carrier, ticket, reduction_of(args));
  const size_t element = nbytes_of(args.dtype);
  const size_t nbytes = static_cast<size_t>(args.numel) * element;
  kernels::OrderedMean mean = mean_of(reduction_of(args));
  if (nbytes <= carrier.most_nbytes_summed_alone()) {
    // Apart from the memory that the peers still read; the result is taken over when all have read.
    std::byte* sum = carrier.scratch(nbytes);
    mean.out = sum;
    carrier.exchange(ticket, {bytes_at(args.data), nbytes, nbytes, 1},
                     [&](const Exchange::Part& part) { add_part(carrier, mean, part); });
    carrier.copy(args.data, sum, nbytes);
    return;
  }
  // Each rank sums its strip, in place, as nobody else reads that strip of its memory; then all get all strips.
  const size_t strip_nbytes = static_cast<size_t>(slice_stride(args.numel, carrier.size())) * element;
  std::byte* own =
      bytes_at(args.data, static_cast<size_t>(slice_of(args.numel, carrier.size(), carrier.rank()).begin) * element);
  mean.out = own;
  carrier.exchange(ticket, {bytes_at(args.data), nbytes, strip_nbytes, carrier.size()},
                   [&](const Exchange::Part& part) { add_part(carrier, mean, part); });
  carrier.all_gather(ticket, {own, bytes_at(args.data), strip_nbytes, nbytes});
}

}  // namespace shoal
