// See traffic.h.
#include "comm/group/traffic.h"

#include "comm/group/slices.h"

namespace shoal {

namespace {

// What this rank sends to each of the others, and gets of each.
struct ToAndFrom {
  uint64_t sent = 0, received = 0;
};

template <class Each>
Traffic sum_over_peers(const Members& ranks, const Each& each) {
  Traffic sum{.collectives = 1};
  for (int peer = 0; peer < ranks.size(); ++peer) {
    if (peer == ranks.rank()) continue;
    const ToAndFrom nbytes = each(peer);
    sum.sent_nbytes += nbytes.sent;
    sum.received_nbytes += nbytes.received;
    if (!ranks.is_elsewhere(peer, ranks.rank())) continue;
    sum.sent_between_hosts += nbytes.sent;
    sum.received_between_hosts += nbytes.received;
  }
  return sum;
}

Traffic both_ways(const Members& ranks, uint64_t nbytes) {
  return sum_over_peers(ranks, [&](int) { return ToAndFrom{nbytes, nbytes}; });
}

}  // namespace

Traffic traffic_of(const AllGather& args, const Members& ranks) { return both_ways(ranks, args.shard_nbytes); }

Traffic traffic_of(const ReduceScatter& args, const Members& ranks) {
  return both_ways(ranks, static_cast<uint64_t>(args.shard_numel) * nbytes_of(args.whole_dtype));
}

Traffic traffic_of(const AllReduce& args, const Members& ranks) {
  const size_t element = nbytes_of(args.dtype);
  const auto slice = [&](int rank) {
    return static_cast<uint64_t>(slice_of(args.numel, ranks.size(), rank).numel) * element;
  };
  // Reducing: the peer's slice goes out, its part of the own slice comes in. Gathering: the other way round.
  return sum_over_peers(ranks, [&](int peer) {
    const uint64_t both = slice(peer) + slice(ranks.rank());
    return ToAndFrom{both, both};
  });
}

Traffic traffic_of(const Exchange& args, const Members& ranks) { return both_ways(ranks, args.slice_nbytes); }

Traffic traffic_of(const Broadcast& args, const Members& ranks) {
  return sum_over_peers(ranks, [&](int peer) {
    return ToAndFrom{ranks.rank() == args.root ? args.nbytes : 0, peer == args.root ? args.nbytes : 0};
  });
}

}  // namespace shoal
