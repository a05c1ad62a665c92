#include "shard/gradient_homes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "device/host_queue.h"
#include "device/ledger.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;

struct Homes {
  explicit Homes(int berths, const std::vector<size_t>& nbytes = {1, 1, 1, 1})
      : homes(nbytes, berths, *group, *queue, ledger) {}

  // One unit's turn in a micro-step: adds a digit to what is in its berth.
  char add(int unit, char digit) {
    auto* here = reinterpret_cast<char*>(homes.berth(unit));
    const char was = *here;
    *here = static_cast<char>(was + digit);
    homes.send_home(unit, 0, 1);
    homes.leave(unit, {});
    return was;
  }
  char at_home(int unit) const { return static_cast<char>(*homes.home(unit)); }
  size_t berth_nbytes() const { return ledger->line(MemoryKind::reduce_slots).nbytes; }

  std::unique_ptr<Group> group = make_single_group();
  std::unique_ptr<Queue> queue = make_host_queue();
  std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
  GradientHomes homes;
};

// In the order of the first micro-step, and in others.
TEST(GradientHomes, WhatEarlierMicroStepsLeftComesBack) {
  for (const int berths : {1, 2, 3}) {
    for (const std::vector<int>& order : std::vector<std::vector<int>>{{3, 2, 1, 0}, {0, 3, 1, 2}}) {
      Homes held(berths);
      held.homes.begin_micro_step(false);
      for (const int unit : {3, 2, 1, 0}) held.add(unit, 0);
      for (char micro = 1; micro <= 3; ++micro) {
        held.homes.begin_micro_step(true);
        for (const int unit : order) {
          EXPECT_EQ(held.add(unit, static_cast<char>(unit + 1)), (unit + 1) * (micro - 1)) << unit;
        }
      }
      for (int unit = 0; unit < 4; ++unit) EXPECT_EQ(held.at_home(unit), 3 * (unit + 1));
      EXPECT_EQ(held.berth_nbytes(), static_cast<size_t>(berths));
    }
  }
}

TEST(GradientHomes, TakesAnotherBerthOnlyWhereUnitsHoldAll) {
  Homes held(2);
  held.homes.begin_micro_step(false);
  std::byte* const first = held.homes.berth(0);
  EXPECT_EQ(held.homes.berth(0), first) << "it stays until it leaves";
  EXPECT_NE(held.homes.berth(1), first);
  EXPECT_EQ(held.berth_nbytes(), 2u);
  held.homes.berth(2);
  EXPECT_EQ(held.berth_nbytes(), 3u);
  held.homes.leave(0, {});
  EXPECT_EQ(held.homes.berth(3), first);
  EXPECT_EQ(held.berth_nbytes(), 3u);
}

// A pass that threw leaves units in berths; the next one is not hindered.
TEST(GradientHomes, BeginsAnewAfterAMicroStepThatDidNotEnd) {
  Homes held(2);
  held.homes.begin_micro_step(false);
  held.homes.berth(0);
  held.homes.berth(1);
  held.homes.begin_micro_step(false);
  for (const int unit : {2, 1, 0}) held.add(unit, 1);
  EXPECT_EQ(held.berth_nbytes(), 2u);
}

TEST(GradientHomes, AUnitHasItsPlaceAmongThoseOfOtherSizes) {
  Homes held(2, {3, 0, 5});
  EXPECT_EQ(held.homes.home(2) - held.homes.home(0), 3);
  EXPECT_EQ(held.ledger->line(MemoryKind::host_gradients).nbytes, 8u);
  held.homes.begin_micro_step(false);
  std::memcpy(held.homes.berth(2), "abcde", 5);
  held.homes.send_home(2, 1, 3);
  held.homes.leave(2, {});
  EXPECT_EQ(std::memcmp(held.homes.home(2) + 1, "bcd", 3), 0);
  EXPECT_EQ(held.homes.unpinned_because(), "");
}

// What a collective brings home is waited for before the berth has another unit.
TEST(GradientHomes, ABerthIsFreeWhenItsLastUnitIsHome) {
  Homes held(1);
  std::vector<int> order;
  held.homes.begin_micro_step(false);
  for (int unit = 0; unit < 2; ++unit) {
    std::byte* const here = held.homes.berth(unit);
    *here = std::byte(7 + unit);
    ReduceScatter reduce;
    reduce.after = [&, unit, here] {
      *held.homes.home(unit) = *here;
      order.push_back(unit);
    };
    held.homes.leave(unit, {held.group->reduce_scatter(std::move(reduce))});
  }
  EXPECT_THAT(order, ElementsAre(0, 1));
  EXPECT_EQ(held.at_home(0), 7);
  EXPECT_EQ(held.at_home(1), 8);
}

}  // namespace
}  // namespace shoal
