// Every way in which a world can end, for any transport: `make(world, timeout)` gives the groups of its ranks, which
// are played as threads. Deaths of processes are in tests/process.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <latch>

#include "collectives/collective_cases.h"
#include "shoal/error.h"
#include "unit/comm/rank_threads.h"

namespace shoal::testing {

// Does something when a scope is left, also by an exception.
struct AtEnd {
  explicit AtEnd(std::function<void()> act) : act(std::move(act)) {}
  ~AtEnd() { act(); }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;
  std::function<void()> act;
};

using MakeGroups = std::function<Groups(int world, Timeout timeout)>;

inline void check_channels_are_independent(const MakeGroups& make, int world) {
  run_ranks(make(world, kDefaultTimeout), [](Group& group) {
    auto first = group.channel("side");
    auto second = group.channel("side");
    // Opposite orders on two channels: no deadlock, since neither waits for the other.
    Handle a = group.rank() % 2 == 0 ? first->barrier({"one", ""}) : second->barrier({"two", ""});
    Handle b = group.rank() % 2 == 0 ? second->barrier({"two", ""}) : first->barrier({"one", ""});
    a.wait();
    b.wait();
    check_all_reduce(*second, Memory::of_group, DType::bf16, 77);
    EXPECT_EQ(first->traffic().collectives, 1u);
    EXPECT_EQ(second->traffic().collectives, 2u);
    group.barrier({"end", ""}).wait();
  });
}

inline void check_different_collectives_are_named(const MakeGroups& make) {
  const auto texts = outcomes_of(make(3, kDefaultTimeout), [](auto& group) {
    group->barrier({"begin", ""}).wait();
    group->barrier({group->rank() == 2 ? "reduce" : "gather", "head"}).wait();
  });
  using ::testing::HasSubstr;
  EXPECT_THAT(texts[0], HasSubstr("[comm rank 0] gather of head (#2): rank 2 is at reduce of head (#2) instead"));
  EXPECT_THAT(texts[1], HasSubstr("[comm rank 1] gather of head (#2): rank 2 is at reduce of head (#2) instead"));
  EXPECT_THAT(texts[2], HasSubstr("[comm rank 2] reduce of head (#2): rank 0 is at gather of head (#2) instead"));
}

inline void check_different_sizes_are_named(const MakeGroups& make) {
  const auto texts = outcomes_of(make(2, kDefaultTimeout), [](auto& group) {
    std::vector<float> data(static_cast<size_t>(4 + group->rank()));
    group->all_reduce({{"sum", "norm"}, data.data(), DType::f32, 4 + group->rank(), 1.0f, nullptr}).wait();
  });
  EXPECT_THAT(texts[0], ::testing::HasSubstr("sum of norm (#1): rank 1 brings 20 bytes and this rank 16"));
  EXPECT_THAT(texts[1], ::testing::HasSubstr("sum of norm (#1): rank 0 brings 16 bytes and this rank 20"));
}

inline void check_abort_wakes_everyone(const MakeGroups& make) {
  const auto start = std::chrono::steady_clock::now();
  std::latch channels_open(3);  // or a slow rank would still be opening its own, and rightly say so
  const auto texts = outcomes_of(make(3, kDefaultTimeout), [&](auto& group) {
    auto side = group->channel("weights");
    channels_open.arrive_and_wait();
    if (group->rank() == 1) {
      group->abort("out of paper");
      group->barrier({"late", ""}).wait();
    }
    (group->rank() == 0 ? side : group)->barrier({"gather", "block.3"}).wait();
  });
  using ::testing::HasSubstr;
  EXPECT_THAT(texts[0], HasSubstr("[comm rank 0] gather of block.3 (weights #1): rank 1 gave up: out of paper"));
  EXPECT_THAT(texts[1], HasSubstr("rank 1 gave up: out of paper"));
  EXPECT_THAT(texts[2], HasSubstr("[comm rank 2] gather of block.3 (#1): rank 1 gave up: out of paper"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(120));
}

// Who waits for something else than the hosts asks for the world's fate, and hears what another rank wrote down.
inline void check_fate_is_heard_by_everyone(const MakeGroups& make) {
  using namespace std::chrono_literals;
  const auto groups = make(2, 30s);
  const std::shared_ptr<Fate> writer = full(*groups[1]).fate(), reader = full(*groups[0]).fate();
  EXPECT_EQ(reader->timeout(), 30s);
  EXPECT_FALSE(reader->failure());
  EXPECT_EQ(reader->dead_peer(), "");
  writer->fail({1, "gather of block.3 (weights #42)", "it hangs"});
  writer->fail({1, "", "too late"});
  std::optional<Failure> heard;
  for (const auto deadline = std::chrono::steady_clock::now() + 30s;
       !heard && std::chrono::steady_clock::now() < deadline;) {
    heard = reader->failure();
    std::this_thread::sleep_for(10ms);
  }
  ASSERT_TRUE(heard);
  EXPECT_EQ(to_text(*heard), to_text(Failure{1, "gather of block.3 (weights #42)", "it hangs"}));
}

inline void check_timeout_names_the_late_rank(const MakeGroups& make) {
  using namespace std::chrono_literals;
  const auto start = std::chrono::steady_clock::now();
  std::latch others_ended(2);
  const auto texts = outcomes_of(make(3, 2500ms), [&](auto& group) {
    group->barrier({"begin", ""}).wait();
    if (group->rank() == 1) return others_ended.wait();
    const AtEnd count([&] { others_ended.count_down(); });
    group->barrier({"gather", "head"}).wait();
  });
  EXPECT_THAT(texts[0], ::testing::HasSubstr("gather of head (#2): rank 1 did not arrive within 2.5 s"));
  EXPECT_THAT(texts[2], ::testing::HasSubstr("gather of head (#2): rank 1 did not arrive within 2.5 s"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 120s);
}

inline void check_leaving_is_named(const MakeGroups& make, int leaver) {
  const auto texts = outcomes_of(make(3, kDefaultTimeout), [&](auto& group) {
    group->barrier({"begin", ""}).wait();
    if (group->rank() == leaver) return group.reset();
    group->barrier({"gather", "head"}).wait();
  });
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == leaver) {
      EXPECT_EQ(texts[static_cast<size_t>(rank)], "");
    } else {
      EXPECT_THAT(texts[static_cast<size_t>(rank)],
                  ::testing::HasSubstr("gather of head (#2): rank " + std::to_string(leaver) + " left"));
    }
  }
}

inline void check_leaving_in_flight_does_not_hang(const MakeGroups& make) {
  std::latch other_ended(1);
  const auto texts = outcomes_of(make(2, kDefaultTimeout), [&](auto& group) {
    if (group->rank() == 1) return other_ended.wait();
    const AtEnd count([&] { other_ended.count_down(); });
    Handle first = group->barrier({"gather", "a"});
    Handle second = group->barrier({"gather", "b"});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    group.reset();
    EXPECT_THROW(second.wait(), Error);
    first.wait();
  });
  EXPECT_THAT(texts[0], ::testing::HasSubstr("gather of a (#1): rank 0 left"));
}

}  // namespace shoal::testing
