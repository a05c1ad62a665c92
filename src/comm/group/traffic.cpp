// See traffic.h.
#include "comm/group/traffic.h"

#include "comm/group/slices.h"

namespace shoal {

namespace {

Traffic both_ways(uint64_t nbytes) { return {nbytes, nbytes, 1}; }

}  // namespace

Traffic traffic_of(const AllGather& args, int world) {
  return both_ways(args.shard_nbytes * static_cast<uint64_t>(world - 1));
}

Traffic traffic_of(const ReduceScatter& args, int world) {
  return both_ways(static_cast<uint64_t>(args.shard_numel) * nbytes_of(args.whole_dtype) *
                   static_cast<uint64_t>(world - 1));
}

Traffic traffic_of(const AllReduce& args, int world, int rank) {
  const int64_t own = slice_of(args.numel, world, rank).numel;
  // Reducing: the peers' slices go out, their parts of the own slice come in. Gathering: the other way round.
  return both_ways(static_cast<uint64_t>(args.numel - own + own * (world - 1)) * nbytes_of(args.dtype));
}

Traffic traffic_of(const Exchange& args, int world) {
  return both_ways(args.slice_nbytes * static_cast<uint64_t>(world - 1));
}

Traffic traffic_of(const Broadcast& args, int world, int rank) {
  if (rank == args.root) return {args.nbytes * static_cast<uint64_t>(world - 1), 0, 1};
  return {0, args.nbytes, 1};
}

}  // namespace shoal
