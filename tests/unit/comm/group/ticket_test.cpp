// Tickets: what they say of a collective, and how two that differ are told apart.
#include "comm/group/ticket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

ReduceScatter reduce() {
  ReduceScatter args;
  args.subject = {"reduce", "block.3"};
  args.shard_numel = 10;
  args.whole_dtype = DType::bf16;
  return args;
}

TEST(Ticket, DescribesTheCollective) {
  EXPECT_EQ(describe(ticket_of(reduce(), 42, 2), "grads"), "reduce of block.3 (grads #42)");
  EXPECT_EQ(describe(ticket_of(Subject{"end", ""}, 1), ""), "end (#1)");
  EXPECT_EQ(ticket_of(reduce(), 42, 3).nbytes, 60u);
}

TEST(Ticket, LongSubjectsAreCutButStillToldApart) {
  const std::string name(200, 'x');
  const Ticket a = ticket_of(Subject{"gather", name + "a"}, 1), b = ticket_of(Subject{"gather", name + "b"}, 1);
  EXPECT_EQ(describe(a, "").size(), sizeof(a.subject) - 1 + std::string(" (#1)").size());
  EXPECT_THAT(disagreement(a, b, 1, ""), HasSubstr("rank 1 is at gather of xxx"));
}

TEST(Ticket, EqualTicketsAgree) {
  EXPECT_THAT(disagreement(ticket_of(reduce(), 7, 2), ticket_of(reduce(), 7, 2), 1, ""), IsEmpty());
}

TEST(Ticket, EachDifferenceIsNamed) {
  const Ticket mine = ticket_of(reduce(), 7, 2);
  const auto against = [&](auto change) {
    ReduceScatter args = reduce();
    change(args);
    return disagreement(mine, ticket_of(args, 7, 2), 1, "");
  };
  EXPECT_THAT(against([](auto& a) { a.subject.unit = "head"; }), HasSubstr("rank 1 is at reduce of head (#7) instead"));
  EXPECT_THAT(against([](auto& a) { a.shard_numel = 11; }), HasSubstr("rank 1 brings 44 bytes and this rank 40"));
  EXPECT_THAT(against([](auto& a) { a.whole_dtype = DType::f16; }),
              HasSubstr("brings fp16 (result fp32) and this rank bf16"));
  EXPECT_THAT(against([](auto& a) { a.shard_dtype = DType::bf16; }),
              HasSubstr("(result bf16) and this rank bf16 (result fp32)"));
  EXPECT_THAT(against([](auto& a) { a.post = 0.5f; }), HasSubstr("scales by 0.5, this rank by 1"));
  EXPECT_THAT(against([](auto& a) { a.piece_numel = 5; }),
              HasSubstr("cuts into pieces of 10 bytes and this rank of 0"));
  EXPECT_THAT(disagreement(mine, ticket_of(Subject{"reduce", "block.3"}, 7), 1, ""),
              HasSubstr("does a barrier here and this rank a reduce-scatter"));
  Broadcast cast;
  cast.subject = {"publish", "x"};
  const Ticket from_zero = ticket_of(cast, 1, 0);
  EXPECT_THAT(disagreement(from_zero, ticket_of(cast, 1, 1), 1, ""),
              HasSubstr("takes rank 1 as the root and this rank takes rank 0"));
  EXPECT_THAT(disagreement(mine, ticket_of(reduce(), 8, 2), 1, ""),
              HasSubstr("rank 1 is at reduce of block.3 (#8) instead"));
}

TEST(Ticket, AccumulationIsEachRanksOwnAffair) {
  ReduceScatter args = reduce();
  args.carry = 1;
  EXPECT_THAT(disagreement(ticket_of(reduce(), 7, 2), ticket_of(args, 7, 2), 1, ""), IsEmpty());
}

TEST(Ticket, SplitsIntoDifferentPartsDisagreeWhereverTheyDiffer) {
  const Ticket mine = ticket_of_split("shard", {{0, 1}, {2, 3}}, 4);
  EXPECT_EQ(describe(mine, "weights"), "split of shard into {0 1} {2 3} (weights #4)");
  EXPECT_THAT(disagreement(mine, ticket_of_split("shard", {{0, 1}, {2, 3}}, 4), 2, ""), IsEmpty());
  EXPECT_THAT(disagreement(mine, ticket_of_split("shard", {{0, 1}, {3, 2}}, 4), 2, ""),
              HasSubstr("rank 2 is at split of shard into {0 1} {3 2} (#4) instead: the ranks want different groups."));
  Parts many(1), others(1);
  for (int rank = 0; rank < 100; ++rank) many[0].push_back(rank);
  others = many;
  std::swap(others[0][98], others[0][99]);  // beyond what a ticket has room for
  EXPECT_NE(disagreement(ticket_of_split("x", many, 1), ticket_of_split("x", others, 1), 1, ""), "");
}

TEST(Ticket, ExchangesOfDifferentSlicesDisagree) {
  Exchange mine;
  mine.subject = {"exchange", "block.3"};
  mine.slice_nbytes = 10;
  Exchange theirs = mine;
  theirs.slice_nbytes = 20;
  EXPECT_THAT(disagreement(ticket_of(mine, 1, 2), ticket_of(theirs, 1, 2), 3, ""),
              HasSubstr("rank 3 brings 40 bytes and this rank 20"));
}

}  // namespace
}  // namespace shoal
