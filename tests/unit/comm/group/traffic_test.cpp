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
    const Traffic both = traffic_of(all_reduce_of(shard_numel * world, DType::bf16), world, 0);
    EXPECT_EQ(both.sent_nbytes, traffic_of(gather, world).sent_nbytes + traffic_of(reduce, world).sent_nbytes);
    EXPECT_EQ(both.received_nbytes, both.sent_nbytes);
    EXPECT_EQ(traffic_of(gather, world).sent_nbytes, static_cast<uint64_t>(world - 1) * 24);
  }
}

TEST(Traffic, AnExchangeMovesWhatAReduceScatterOfItsBytesMoves) {
  Exchange exchange;
  exchange.slice_nbytes = 24;
  for (const int world : {1, 2, 3, 4}) {
    EXPECT_EQ(traffic_of(exchange, world).sent_nbytes, static_cast<uint64_t>(world - 1) * 24);
    EXPECT_EQ(traffic_of(exchange, world).received_nbytes, static_cast<uint64_t>(world - 1) * 24);
  }
}

TEST(Traffic, WhatAllRanksSendIsWhatAllReceive) {
  for (const int world : {1, 2, 3, 4}) {
    for (const int64_t numel : {0, 1, 2, 3, 5, 100, 101}) {
      uint64_t sent = 0, received = 0;
      for (int rank = 0; rank < world; ++rank) {
        const Traffic reduce = traffic_of(all_reduce_of(numel, DType::f32), world, rank);
        Broadcast cast;
        cast.nbytes = static_cast<size_t>(numel);
        cast.root = world - 1;
        const Traffic publish = traffic_of(cast, world, rank);
        sent += reduce.sent_nbytes + publish.sent_nbytes;
        received += reduce.received_nbytes + publish.received_nbytes;
      }
      EXPECT_EQ(sent, received);
      // Each element goes to the one who sums it and comes back summed, for every rank but that one.
      EXPECT_EQ(sent, static_cast<uint64_t>(2 * numel * (world - 1) * 4 + numel * (world - 1)));
    }
  }
}

}  // namespace
}  // namespace shoal
