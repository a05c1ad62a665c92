// See cuda_single_carrier.h.
#include "comm/cuda_single_carrier.h"

namespace shoal {

void CudaSingleCarrier::all_gather(const Ticket&, const AllGather& args) {
  if (args.shard != args.whole) queue().copy(args.whole, args.shard, args.shard_nbytes);
}

void CudaSingleCarrier::reduce_scatter(const Ticket&, const ReduceScatter& args) { sum_slices({args.whole}, args); }

void CudaSingleCarrier::all_reduce(const Ticket& ticket, const AllReduce& args) {
  ReduceScatter reduce;
  reduce.whole = reduce.shard = args.data;
  reduce.whole_dtype = reduce.shard_dtype = args.dtype;
  reduce.shard_numel = args.numel;
  reduce.post = args.post;
  reduce_scatter(ticket, reduce);
}

}  // namespace shoal
