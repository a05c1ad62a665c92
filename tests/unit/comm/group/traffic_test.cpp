// Volumes of the ZeRO paper, per rank.
#include "comm/group/traffic.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

AllReduce all_reduce_of(int64_t numel, DType dtype) {
  AllReduce args;
  args.numel = numel;
  args.dtype = dtype;
  return args;
}

TEST(Traffic, AllReduceIsReduceScatterPlusAllGather) {
  for (const int world : {1, 2, 3, 4}) {
    const int64_t shard_numel = 12;
    AllGather gather;
    gather.shard_nbytes = 24;
    ReduceScatter reduce;
    reduce.shard_numel = shard_numel;
    reduce.whole_dtype = DType::bf16;
    const Traffic both = traffic_of(all_reduce_of(shard_numel * world, DType::bf16), Members::all(world, 0));
    EXPECT_EQ(both.sent_nbytes, traffic_of(gather, Members::all(world, 0)).sent_nbytes +
                                    traffic_of(reduce, Members::all(world, 0)).sent_nbytes);
    EXPECT_EQ(both.received_nbytes, both.sent_nbytes);
    EXPECT_EQ(traffic_of(gather, Members::all(world, 0)).sent_nbytes, static_cast<uint64_t>(world - 1) * 24);
  }
}

TEST(Traffic, AnExchangeMovesWhatAReduceScatterOfItsBytesMoves) {
  Exchange exchange;
  exchange.slice_nbytes = 24;
  for (const int world : {1, 2, 3, 4}) {
    EXPECT_EQ(traffic_of(exchange, Members::all(world, 0)).sent_nbytes, static_cast<uint64_t>(world - 1) * 24);
    EXPECT_EQ(traffic_of(exchange, Members::all(world, 0)).received_nbytes, static_cast<uint64_t>(world - 1) * 24);
  }
}

TEST(Traffic, WhatAllRanksSendIsWhatAllReceive) {
  for (const int world : {1, 2, 3, 4}) {
    for (const int64_t numel : {0, 1, 2, 3, 5, 100, 101}) {
      uint64_t sent = 0, received = 0;
      for (int rank = 0; rank < world; ++rank) {
        const Traffic reduce = traffic_of(all_reduce_of(numel, DType::f32), Members::all(world, rank));
        Broadcast cast;
        cast.nbytes = static_cast<size_t>(numel);
        cast.root = world - 1;
        const Traffic publish = traffic_of(cast, Members::all(world, rank));
        sent += reduce.sent_nbytes + publish.sent_nbytes;
        received += reduce.received_nbytes + publish.received_nbytes;
      }
      EXPECT_EQ(sent, received);
      // Each element goes to the one who sums it and comes back summed, for every rank but that one.
      EXPECT_EQ(sent, static_cast<uint64_t>(2 * numel * (world - 1) * 4 + numel * (world - 1)));
    }
  }
}

TEST(Traffic, WhatGoesToOtherHostsIsCountedByItself) {
  const std::vector<int> hosts = {0, 0, 1, 1, 1};
  AllGather gather;
  gather.shard_nbytes = 24;
  const Traffic first = traffic_of(gather, Members::all(5, 0, hosts)),
                last = traffic_of(gather, Members::all(5, 4, hosts));
  EXPECT_EQ(first.sent_between_hosts, 3u * 24);
  EXPECT_EQ(last.received_between_hosts, 2u * 24);
  EXPECT_EQ(first.sent_nbytes, 4u * 24);
  // A part of the ranks: its own numbers, the world's hosts.
  const Members part({3, 1}, 1, "replica", hosts);
  EXPECT_EQ(traffic_of(gather, part).sent_between_hosts, 24u);
  EXPECT_EQ(traffic_of(gather, Members({2, 3}, 2, "shard", hosts)).sent_between_hosts, 0u);
  Broadcast cast;
  cast.nbytes = 10;
  cast.root = 0;
  EXPECT_EQ(traffic_of(cast, Members::all(5, 0, hosts)).sent_between_hosts, 30u);
  EXPECT_EQ(traffic_of(cast, Members::all(5, 1, hosts)).received_between_hosts, 0u);
  EXPECT_EQ(traffic_of(cast, Members::all(5, 2, hosts)).received_between_hosts, 10u);
}

}  // namespace
}  // namespace shoal
