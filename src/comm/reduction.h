// A reduction as the kernel sees it, for every carrier: what the collective's arguments say of dtypes, factors and
// sizes. A carrier adds the sources.
#pragma once

#include "kernels/reduce.h"
#include "shoal/group.h"

namespace shoal {

inline kernels::OrderedMean mean_of(const ReduceScatter& args) {
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

// An all-reduce of elements that one rank sums by itself, in place.
inline ReduceScatter reduction_of(const AllReduce& args) {
  ReduceScatter reduce;
  reduce.subject = args.subject;
  reduce.whole = reduce.shard = args.data;
  reduce.whole_dtype = reduce.shard_dtype = args.dtype;
  reduce.shard_numel = args.numel;
  reduce.post = args.post;
  return reduce;
}

}  // namespace shoal
