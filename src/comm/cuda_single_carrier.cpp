// See cuda_single_carrier.h.
#include "comm/cuda_single_carrier.h"

#include "comm/reduction.h"

namespace shoal {

void CudaSingleCarrier::all_gather(const Ticket&, const AllGather& args) {
  if (args.shard != args.whole) queue().copy(args.whole, args.shard, args.shard_nbytes);
}

void CudaSingleCarrier::reduce_scatter(const Ticket&, const ReduceScatter& args) {
  const bool in_place = args.shard == args.whole && args.shard_dtype == args.whole_dtype && !args.accumulate;
  if (in_place && args.pre == 1.0f && args.post == 1.0f) return;  // every element is its own mean
  sum_slices({args.whole}, args);
}

void CudaSingleCarrier::all_reduce(const Ticket& ticket, const AllReduce& args) {
  reduce_scatter(ticket, reduction_of(args));
}

}  // namespace shoal
