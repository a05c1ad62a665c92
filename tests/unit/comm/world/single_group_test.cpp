// A world of one does what a larger world does: the same kernel, the callback, the errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/collective_cases.h"
#include "message_of.h"
#include "shoal/error.h"

namespace shoal {
namespace {

TEST(SingleGroup, CollectivesGiveTheContractsBits) {
  auto group = make_single_group();
  testing::check_collectives(*group, testing::Memory::foreign);
  testing::check_collectives(*group->channel("side"), testing::Memory::of_group);
}

TEST(SingleGroup, CanBeSplitIntoItself) {
  auto group = make_single_group();
  auto part = group->split("shard", {{0}});
  EXPECT_EQ(part->members(), std::vector<int>{0});
  testing::check_collectives(*part, testing::Memory::foreign);
  EXPECT_THAT(testing::message_of([&] {
                group->split("shard", {{0, 1}});
              }),
              ::testing::HasSubstr("rank 1 is not of this group"));
  group->abort("no more");
  EXPECT_THROW(part->barrier({"end", ""}), Error);
}

TEST(SingleGroup, SendsNothing) {
  auto group = make_single_group();
  testing::check_all_reduce(*group, testing::Memory::of_group, DType::f32, 100);
  EXPECT_EQ(group->traffic().sent_nbytes, 0u);
  EXPECT_EQ(group->traffic().collectives, 1u);
}

TEST(SingleGroup, AbortStopsItAndItsChannels) {
  auto group = make_single_group();
  auto side = group->channel("side");
  group->abort("no more");
  EXPECT_THROW(group->barrier({"end", ""}), Error);
  try {
    side->barrier({"end", ""});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 0 gave up: no more"));
  }
}

TEST(SingleGroup, AnErrorOfAfterIsKeptInTheHandle) {
  auto group = make_single_group();
  float value = 1;
  ReduceScatter args;
  args.whole = args.shard = &value;
  args.shard_numel = 1;
  args.after = [] { throw Error("test", "after failed"); };
  Handle handle = group->reduce_scatter(args);
  EXPECT_THROW(handle.wait(), Error);
  AllGather gather{{"gather", "unit"}, &value, &value, sizeof value, {}};
  gather.after = args.after;
  EXPECT_THROW(group->all_gather(gather).wait(), Error);
}

}  // namespace
}  // namespace shoal
