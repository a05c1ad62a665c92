// What Group::split must do on every transport: parts whose collectives run beside each other and the world's, and
// endings that name ranks by their number in the world. `make(world, timeout)` gives the groups of ranks as threads.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "collectives/collective_cases.h"
#include "unit/comm/rank_threads.h"
#include "unit/comm/world_endings.h"

namespace shoal::testing {

// Two ways to cut a world: 4 as the two axes of 2 x 2; smaller ones with parts of one rank, and in another order.
inline Parts rows_of(int world) {
  if (world == 4) return {{0, 1}, {2, 3}};
  if (world == 3) return {{2, 0}, {1}};
  return world == 2 ? Parts{{1, 0}} : Parts{{0}};
}
inline Parts columns_of(int world) {
  if (world == 4) return {{0, 2}, {1, 3}};
  if (world == 3) return {{0}, {1, 2}};
  return world == 2 ? Parts{{0}, {1}} : Parts{{0}};
}

// One element a rank, exact in any order.
inline float share_of(int global) { return static_cast<float>(1 << global); }
inline float sum_of_shares(const Group& group) {
  float sum = 0;
  for (const int global : group.members()) sum += share_of(global);
  return sum;
}

inline void check_members(Group& part, const Parts& parts, int global) {
  for (const std::vector<int>& ranks : parts) {
    if (std::find(ranks.begin(), ranks.end(), global) == ranks.end()) continue;
    EXPECT_EQ(part.members(), ranks);
    EXPECT_EQ(part.size(), static_cast<int>(ranks.size()));
    EXPECT_EQ(ranks[static_cast<size_t>(part.rank())], global);
  }
  std::vector<int> said(static_cast<size_t>(part.size()));
  part.all_gather({{"say", "who"}, &global, said.data(), sizeof(int), nullptr}).wait();
  EXPECT_EQ(said, part.members());
}

// Both ways alive at once, their collectives mixed with the world's, none waited for until all are issued.
inline void check_parts_beside_each_other(Group& world) {
  const int global = world.rank();
  const auto row = world.split("row", rows_of(world.size()));
  const auto column = world.split("column", columns_of(world.size()));
  check_members(*row, rows_of(world.size()), global);
  check_members(*column, columns_of(world.size()), global);
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<Handle> handles;
    float of_row = share_of(global), of_column = share_of(global), of_world = share_of(global);
    std::vector<float> gathered(static_cast<size_t>(row->size()), -1.0f);
    handles.push_back(row->all_reduce({{"sum", "row"}, &of_row, DType::f32, 1, 1.0f, nullptr}));
    handles.push_back(column->all_reduce({{"sum", "column"}, &of_column, DType::f32, 1, 1.0f, nullptr}));
    const float own = share_of(global);
    handles.push_back(row->all_gather({{"gather", "row"}, &own, gathered.data(), sizeof(float), nullptr}));
    handles.push_back(world.all_reduce({{"sum", "world"}, &of_world, DType::f32, 1, 1.0f, nullptr}));
    for (const Handle& handle : handles) handle.wait();
    EXPECT_EQ(of_row, sum_of_shares(*row));
    EXPECT_EQ(of_column, sum_of_shares(*column));
    EXPECT_EQ(of_world, sum_of_shares(world));
    for (int rank = 0; rank < row->size(); ++rank) {
      EXPECT_EQ(gathered[static_cast<size_t>(rank)], share_of(row->members()[static_cast<size_t>(rank)]));
    }
  }
  EXPECT_EQ(row->traffic().collectives, 7u) << "each group counts its own";
  world.barrier({"end", ""}).wait();
}

// The whole grid in a part, and in a channel of it that runs beside it.
inline void check_collectives_of_parts(Group& world, Memory memory) {
  const auto row = world.split("row", rows_of(world.size()));
  const auto side = row->channel("side");
  check_collectives(*row, memory);
  check_reduce_scatter(*side, memory, {DType::bf16, DType::f32, 1025, false, 0.5f, 100});
  check_exchange(*side, memory, 4097, Delivery::taken, 1000);
  world.barrier({"end", ""}).wait();
}

inline void check_parts_of_parts(Group& world) {
  ASSERT_EQ(world.size(), 4);
  const int global = world.rank();
  const auto channel = world.channel("weights");
  const auto row = channel->split("row", rows_of(4));
  const Parts turned = global < 2 ? Parts{{1, 0}} : Parts{{3, 2}};
  const Parts single = global < 2 ? Parts{{0}, {1}} : Parts{{2}, {3}};
  const auto back = row->split("turned", turned);
  const auto alone = row->split("alone", single);
  check_members(*back, turned, global);
  check_members(*alone, single, global);
  check_all_reduce(*back, Memory::of_group, DType::f32, 99);
  check_reduce_scatter(*alone, Memory::of_group, {DType::f32, DType::bf16, 33});
  channel->barrier({"end", ""}).wait();
}

inline void check_different_parts_are_named(const MakeGroups& make) {
  const auto texts = outcomes_of(make(3, kDefaultTimeout), [](auto& group) {
    group->split("shard", group->rank() == 1 ? Parts{{0, 2}, {1}} : Parts{{0, 1}, {2}});
  });
  using ::testing::HasSubstr;
  for (const size_t rank : {0, 2}) {
    EXPECT_THAT(texts[rank], HasSubstr("split of shard into {0 1} {2} (#1): rank 1 is at split of shard into {0 2} {1} "
                                       "(#1) instead: the ranks want different groups"));
  }
  EXPECT_THAT(texts[1], HasSubstr("[comm rank 1] split of shard into {0 2} {1} (#1): rank 0 is at split of shard into "
                                  "{0 1} {2} (#1) instead"));
}

// All ranks are told, and the group that was to be split goes on.
inline void check_wrong_parts_are_an_error(Group& world) {
  const auto told = [&](const Parts& parts) -> std::string {
    try {
      world.split("shard", parts);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(told({{0}}),
              HasSubstr("split of shard into {0}: rank 1 stands in no part. Put each of the ranks {0 1} "));
  EXPECT_THAT(told({{0, 1}, {1}}), HasSubstr("rank 1 stands there twice"));
  EXPECT_THAT(told({{0, 1}, {7}}), HasSubstr("rank 7 is not of this group"));
  EXPECT_THAT(told({{0, 1}, {}}), HasSubstr("a part has no ranks"));
  world.barrier({"go", "on"}).wait();
}

// In 2 x 2, rank 3 leaves or just does not come; the others wait for it, or for who waits for it. Rank 0 has a head
// start: it is the first to wait.
inline std::vector<std::string> lose_rank_3(Groups groups, bool leaves, Timeout head_start = Timeout(0)) {
  std::latch split(4), others_ended(3);
  return outcomes_of(std::move(groups), [&](auto& world) {
    auto row = world->split("row", rows_of(4));
    auto column = world->split("column", columns_of(4));
    split.arrive_and_wait();
    if (world->rank() == 3) {
      if (leaves) {
        row.reset();
        column.reset();
        world.reset();
      }
      return others_ended.wait();
    }
    const AtEnd count([&] { others_ended.count_down(); });
    if (world->rank() != 0) std::this_thread::sleep_for(head_start);
    if (world->rank() == 2) row->barrier({"gather", "head"}).wait();  // for rank 3; rank 0 waits for rank 2
    column->barrier({"gather", "head"}).wait();
  });
}

inline void check_leaving_a_part_is_named(const MakeGroups& make) {
  const auto texts = lose_rank_3(make(4, kDefaultTimeout), true);
  using ::testing::HasSubstr;
  for (const size_t rank : {0, 1, 2}) {
    EXPECT_THAT(texts[rank], HasSubstr("[comm rank " + std::to_string(rank) + "] gather of head ("));
    EXPECT_THAT(texts[rank], HasSubstr("rank 3 left"));
  }
  EXPECT_THAT(texts[1], HasSubstr("gather of head (column #1)"));
  EXPECT_THAT(texts[2], HasSubstr("gather of head (row #1)"));
}

// Rank 0 is the first to run out of time, and what it waits for, rank 2, is not to blame.
inline void check_timeout_in_a_part_names_who_holds_all_up(const MakeGroups& make, Timeout timeout) {
  const auto texts = lose_rank_3(make(4, timeout), false, timeout / 4);
  using ::testing::HasSubstr;
  for (const size_t rank : {0, 1, 2}) {
    EXPECT_THAT(texts[rank], HasSubstr("[comm rank " + std::to_string(rank) + "] gather of head ("));
    EXPECT_THAT(texts[rank], ::testing::AnyOf(HasSubstr("rank 2 did not arrive within"), HasSubstr("rank 3 did not")));
    EXPECT_THAT(texts[rank], ::testing::AnyOf(HasSubstr("held up by rank 3. Look at what rank 3 does"),
                                              HasSubstr("rank 3 did not arrive within")));
  }
}

inline void check_abort_in_a_part_wakes_everyone(const MakeGroups& make) {
  const auto texts = outcomes_of(make(4, kDefaultTimeout), [](auto& world) {
    const auto row = world->split("row", rows_of(4));
    if (world->rank() == 3) row->abort("out of paper");
    row->barrier({"gather", "head"}).wait();
    world->barrier({"gather", "all"}).wait();
  });
  for (const std::string& text : texts) EXPECT_THAT(text, ::testing::HasSubstr("rank 3 gave up: out of paper"));
}

inline void check_disagreement_in_a_part_is_named(const MakeGroups& make) {
  const auto texts = outcomes_of(make(4, kDefaultTimeout), [](auto& world) {
    const auto row = world->split("row", rows_of(4));
    row->barrier({world->rank() == 3 ? "reduce" : "gather", "head"}).wait();
    world->barrier({"gather", "all"}).wait();
  });
  using ::testing::HasSubstr;
  EXPECT_THAT(texts[2],
              HasSubstr("[comm rank 2] gather of head (row #1): rank 3 is at reduce of head (row #1) instead"));
  EXPECT_THAT(texts[3],
              HasSubstr("[comm rank 3] reduce of head (row #1): rank 2 is at gather of head (row #1) instead"));
  for (const size_t rank : {0, 1}) EXPECT_NE(texts[rank], "");
}

}  // namespace shoal::testing
