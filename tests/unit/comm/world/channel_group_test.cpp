// The front of every group: order, handles, errors that stay, traffic.
#include "comm/world/channel_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "comm/group/full_group.h"
#include "shoal/error.h"
#include "unit/comm/rank_threads.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using testing::outcomes_of;
using testing::run_ranks;

TEST(ChannelGroup, CallsReturnAtOnceAndRunInOrder) {
  std::atomic<bool> released{false};
  run_ranks(make_thread_groups(2), [&](Group& group) {
    std::vector<float> whole(8, 1.0f), shard(4);
    std::vector<int> order;
    std::vector<Handle> handles;
    if (group.rank() == 1) {
      while (!released) std::this_thread::yield();
    }
    for (int i = 0; i < 5; ++i) {
      ReduceScatter args;
      args.subject = {"reduce", "unit"};
      args.whole = whole.data();
      args.shard = shard.data();
      args.shard_numel = 4;
      args.after = [&order, i] { order.push_back(i); };
      handles.push_back(group.reduce_scatter(args));
    }
    if (group.rank() == 0) {
      EXPECT_FALSE(handles[0].done());  // rank 1 has not come yet
      released = true;
    }
    handles.back().wait();
    EXPECT_TRUE(handles.front().done());
    EXPECT_THAT(order, ::testing::ElementsAre(0, 1, 2, 3, 4));
    EXPECT_EQ(shard[0], 2.0f);
  });
}

TEST(ChannelGroup, AHandleKeepsItsBuffersAliveUntilItIsDoneAndNoLonger) {
  run_ranks(make_thread_groups(2), [&](Group& group) {
    auto data = std::make_shared<std::vector<float>>(16, 1.0f);
    const std::weak_ptr<std::vector<float>> watched = data;
    Handle handle;
    {
      AllReduce args{{"sum", "x"}, data->data(), DType::f32, 16, 1.0f, data};
      data.reset();
      EXPECT_FALSE(watched.expired());
      handle = group.all_reduce(std::move(args));
    }
    handle.wait();
    EXPECT_TRUE(watched.expired());
  });
}

TEST(ChannelGroup, LogsItsCollectivesAndThoseOfGroupsSplitFromItOnceAsked) {
  run_ranks(make_thread_groups(2), [&](Group& group) {
    group.barrier({"meet", "unasked"}).wait();
    full(group).log_collectives(true);
    float number = 1;
    group.all_reduce({{"sum", "x"}, &number, DType::f32, 1, 1.0f, nullptr}).wait();
    const std::unique_ptr<Group> part = group.split("lone", {{0}, {1}});
    part->barrier({"meet", "alone"}).wait();
    const std::vector<CollectiveRecord> records = full(group).take_collectives();
    ASSERT_EQ(records.size(), 3u);
    EXPECT_EQ(records[0].kind, "all_reduce");
    EXPECT_EQ(records[0].nbytes, sizeof(float));
    EXPECT_GE(records[0].seconds, 0.0);
    EXPECT_EQ(records[2].subject, "meet of alone");
    full(group).log_collectives(false);
    group.barrier({"meet", "unasked"}).wait();
    EXPECT_TRUE(full(group).take_collectives().empty());
  });
}

TEST(ChannelGroup, AnErrorOfAfterReachesTheHandleAndLeavesTheChannelSound) {
  run_ranks(make_thread_groups(2), [&](Group& group) {
    std::vector<float> whole(2, 1.0f);
    ReduceScatter args;
    args.subject = {"reduce", "unit"};
    args.whole = whole.data();
    args.shard = whole.data() + group.rank();
    args.shard_numel = 1;
    args.after = [] { throw Error("test", "after failed"); };
    Handle handle = group.reduce_scatter(args);
    EXPECT_THROW(handle.wait(), Error);
    EXPECT_THROW(handle.wait(), Error) << "wait may be called again";
    AllGather gather{{"gather", "unit"}, whole.data() + group.rank(), whole.data(), sizeof(float), {}};
    gather.after = args.after;
    EXPECT_THROW(group.all_gather(gather).wait(), Error);
    group.barrier({"end", ""}).wait();
  });
}

TEST(ChannelGroup, AFailedChannelThrowsItsFirstErrorEverAfter) {
  outcomes_of(make_thread_groups(2), [](auto& group) {
    auto side = group->channel("side");
    group->barrier({"meet", ""}).wait();
    if (group->rank() == 0) group->abort("no more");
    std::string first, second;
    try {
      for (;;) group->barrier({"gather", "a"}).wait();
    } catch (const Error& error) {
      first = error.what();
    }
    try {
      group->barrier({"gather", "b"}).wait();
    } catch (const Error& error) {
      second = error.what();
    }
    EXPECT_THAT(first, HasSubstr("gather of a"));
    EXPECT_EQ(first, second);
  });
}

TEST(ChannelGroup, TrafficCountsWhatSucceeded) {
  for (const int world : {2, 3, 4}) {
    run_ranks(make_thread_groups(world), [&](Group& group) {
      std::vector<float> whole(static_cast<size_t>(world) * 10);
      group.all_gather({{"gather", "x"}, whole.data() + group.rank() * 10, whole.data(), 40, nullptr}).wait();
      const auto w = static_cast<uint64_t>(world);
      EXPECT_EQ(group.traffic().sent_nbytes, (w - 1) * 40);
      EXPECT_EQ(group.traffic().received_nbytes, (w - 1) * 40);
      EXPECT_EQ(group.traffic().collectives, 1u);
    });
  }
}

TEST(ChannelGroup, AnErrorOfTakeReachesTheHandleAndLeavesTheChannelSound) {
  run_ranks(make_thread_groups(2), [&](Group& group) {
    std::vector<float> slices(2, 1.0f), received(2);
    bool after_ran = false;
    Exchange args;
    args.subject = {"exchange", "unit"};
    args.slices = slices.data();
    args.slice_nbytes = sizeof(float);
    args.take = [&](const Exchange::Part&) {
      if (group.rank() == 1) throw Error("test", "take failed");
    };
    args.after = [&] { after_ran = true; };
    const Handle handle = group.exchange(args);
    if (group.rank() == 1) {
      EXPECT_THROW(handle.wait(), Error);
    } else {
      handle.wait();
    }
    EXPECT_EQ(after_ran, group.rank() == 0);
    group.barrier({"end", ""}).wait();
  });
}

TEST(ChannelGroup, AGroupAndThoseSplitFromItRunInTheOrderOfIssue) {
  run_ranks(make_thread_groups(2), [&](Group& group) {
    const auto part = group.split("both", {{0, 1}});
    const auto alone = group.split("one", {{0}, {1}});
    std::vector<float> whole(2);
    std::vector<std::string> order;
    std::vector<Handle> handles;
    for (Group* each : {&group, part.get(), alone.get(), &group}) {
      AllGather args{{"gather", "x"}, whole.data(), whole.data(), sizeof(float), nullptr};
      args.after = [&order, each] { order.push_back(std::to_string(each->members().size())); };
      handles.push_back(each->all_gather(args));
    }
    handles.back().wait();
    EXPECT_THAT(order, ::testing::ElementsAre("2", "2", "1", "2"));
  });
}

// A later hop would go on from what this one left undone.
TEST(ChannelGroup, WhatFailsInAGroupFailsInThoseThatAreSplitFromTheSame) {
  run_ranks(make_thread_groups(2), [&](Group& group) {
    const std::unique_ptr<Group> part = group.split("part", {{0, 1}}), other = group.split("other", {{0, 1}});
    std::vector<float> whole(8, 1.0f), shard(4);
    ReduceScatter args;
    args.subject = {"reduce", "unit"};
    args.whole = whole.data();
    args.shard = shard.data();
    args.shard_numel = 4;
    args.groups = {.size = 3, .before = 1, .open = nullptr, .closes = true};  // no memory for the open group
    EXPECT_ANY_THROW(part->reduce_scatter(args).wait());
    EXPECT_ANY_THROW(other->barrier({"meet", "after it"}).wait());
    EXPECT_ANY_THROW(group.barrier({"meet", "after it"}).wait());
  });
}

TEST(ChannelGroup, APartOutlivesTheGroupItWasSplitFrom) {
  const auto errors = testing::play_ranks(make_thread_groups(2), [](auto& group) {
    const auto part = group->split("both", {{1, 0}});
    group.reset();
    float value = 1;
    part->all_reduce({{"sum", "x"}, &value, DType::f32, 1, 1.0f, nullptr}).wait();
    EXPECT_EQ(value, 2.0f);
  });
  for (const std::exception_ptr& error : errors) EXPECT_FALSE(error);
}

}  // namespace
}  // namespace shoal
