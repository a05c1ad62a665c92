// See cuda_single_carrier.h.
#include "comm/cuda_single_carrier.h"

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
  ReduceScatter reduce;
  reduce.whole = reduce.shard = args.data;
  reduce.whole_dtype = reduce.shard_dtype = args.dtype;
  reduce.shard_numel = args.numel;
  reduce.post = args.post;
  reduce_scatter(ticket, reduce);
}

}  // namespace shoal
