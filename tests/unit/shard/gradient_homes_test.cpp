#include "shard/gradient_homes.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "device/ledger.h"
#include "unit/optim/far_queue.h"
#include "unit/optim/named_copy_streams.h"

namespace shoal {
namespace {

// Copies that run as late as they may: a copy in when the queue is held for it, a copy out when somebody waits for it.
class LateCopyStreams final : public CopyStreams {
 public:
  ~LateCopyStreams() override {
    while (!out_.empty()) carry(out_, out_.begin()->first);
  }
  void make_room(int) override {}
  std::string pin(std::byte*, size_t) override { return ""; }
  void follow_queue() override {}
  void mark_queue() override {}
  void follow_mark() override {}
  void copy_in(int chunk, std::byte* to, const std::byte* from_host, size_t nbytes, int) override {
    EXPECT_EQ(out_.count(chunk), 0u) << "it comes before it has gone";
    in_[chunk].push_back({to, from_host, nbytes});
  }
  void hold_queue(int chunk) override { carry(in_, chunk); }
  void hold_queue_out(int chunk) override { carry(out_, chunk); }
  void mark_used(int chunk) override { EXPECT_EQ(in_.count(chunk), 0u) << "it goes before it has come"; }
  void copy_out(int chunk, std::byte* to_host, const std::byte* from, size_t nbytes) override {
    out_[chunk].push_back({to_host, from, nbytes});
  }
  void wait_in(int chunk) override { carry(in_, chunk); }
  void wait_out(int chunk) override { carry(out_, chunk); }
  void wait_used(int) override {}
  double newly_held_seconds() override { return 0; }

 private:
  struct Copy {
    std::byte* to;
    const std::byte* from;
    size_t nbytes;
  };
  using Copies = std::map<int, std::vector<Copy>>;
  static void carry(Copies& copies, int chunk) {
    for (const Copy& copy : std::exchange(copies[chunk], {})) std::memcpy(copy.to, copy.from, copy.nbytes);
    copies.erase(chunk);
  }
  Copies in_, out_;
};

struct Homes {
  explicit Homes(int berths, const std::vector<size_t>& nbytes = {1, 1, 1, 1}, std::unique_ptr<Group> group_in = {})
      : group(group_in ? std::move(group_in) : make_single_group()) {
    queue.streams = [] { return std::make_unique<LateCopyStreams>(); };
    held = std::make_unique<GradientHomes>(nbytes, berths, *group, queue, ledger);
  }

  // One unit's turn in a micro-step: adds a digit to what is in its berth, which the first micro-step sets.
  void add(int unit, char digit, bool first = false) {
    auto* here = reinterpret_cast<char*>(homes().berth(unit));
    *here = static_cast<char>((first ? 0 : *here) + digit);
    homes().send_home(unit, 0, 1);
    homes().leave(unit, {});
  }
  // Between micro-steps, when what has left is there.
  char at_home(int unit) {
    homes().begin_micro_step(true);
    homes().berth(unit);
    return static_cast<char>(*homes().home(unit));
  }
  size_t berth_nbytes() const { return ledger->line(MemoryKind::reduce_slots).nbytes; }
  GradientHomes& homes() { return *held; }

  std::unique_ptr<Group> group;
  testing::FarQueue queue;
  std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
  std::unique_ptr<GradientHomes> held;
};

// In the order of the first micro-step, and in others; some units have nothing to add in some micro-steps.
TEST(GradientHomes, WhatEarlierMicroStepsLeftComesBack) {
  for (const int berths : {1, 2, 3}) {
    for (const std::vector<int>& order : std::vector<std::vector<int>>{{3, 2, 1, 0}, {0, 3, 1, 2}}) {
      Homes gradients(berths);
      gradients.homes().begin_micro_step(false);
      for (const int unit : {3, 2, 1, 0}) gradients.add(unit, 1, true);
      for (int micro = 1; micro <= 3; ++micro) {
        gradients.homes().begin_micro_step(true);
        for (const int unit : order) {
          if ((unit + micro) % 3 != 0) {
            gradients.add(unit, static_cast<char>(unit + 1));
          } else {  // nobody touched it
            gradients.homes().send_home(unit, 0, 1);
            gradients.homes().leave(unit, {});
          }
        }
      }
      for (int unit = 0; unit < 4; ++unit) {
        EXPECT_EQ(gradients.at_home(unit), 1 + 2 * (unit + 1)) << unit;
      }
      EXPECT_EQ(gradients.berth_nbytes(), static_cast<size_t>(berths));
    }
  }
}

TEST(GradientHomes, TakesAnotherBerthWhereUnitsHoldAllAndGivesItBack) {
  Homes gradients(2);
  GradientHomes& homes = gradients.homes();
  homes.begin_micro_step(false);
  std::byte* const first = homes.berth(0);
  EXPECT_EQ(homes.berth(0), first) << "it stays until it leaves";
  EXPECT_NE(homes.berth(1), first);
  EXPECT_EQ(gradients.berth_nbytes(), 2u);
  homes.berth(2);
  EXPECT_EQ(gradients.berth_nbytes(), 3u);
  homes.leave(0, {});
  EXPECT_EQ(homes.berth(3), first);
  for (const int unit : {1, 2, 3}) homes.leave(unit, {});
  homes.begin_micro_step(false);
  EXPECT_EQ(gradients.berth_nbytes(), 3u) << "it may be needed again";
  gradients.add(0, 1, true);
  homes.begin_micro_step(false);
  EXPECT_EQ(gradients.berth_nbytes(), 2u);
}

// A forward that no backward follows: what was to come, comes again.
TEST(GradientHomes, BeginsAnewAfterAMicroStepThatDidNotEnd) {
  Homes gradients(3);
  gradients.homes().begin_micro_step(false);
  for (const int unit : {2, 1, 0}) gradients.add(unit, static_cast<char>(unit + 1), true);
  gradients.homes().begin_micro_step(true);
  gradients.homes().begin_micro_step(true);
  for (const int unit : {2, 1, 0}) gradients.add(unit, 1);
  for (const int unit : {2, 1, 0}) EXPECT_EQ(gradients.at_home(unit), unit + 2);
  EXPECT_EQ(gradients.berth_nbytes(), 3u);
}

TEST(GradientHomes, AUnitHasItsPlaceAmongThoseOfOtherSizes) {
  Homes gradients(2, {3, 0, 5});
  GradientHomes& homes = gradients.homes();
  EXPECT_EQ(homes.home(2) - homes.home(0), 3);
  EXPECT_EQ(gradients.ledger->line(MemoryKind::host_gradients).nbytes, 8u);
  homes.begin_micro_step(false);
  std::memcpy(homes.berth(2), "abcde", 5);
  homes.send_home(2, 1, 3);
  homes.leave(2, {});
  gradients.at_home(2);
  EXPECT_EQ(std::memcmp(homes.home(2) + 1, "bcd", 3), 0);
  EXPECT_EQ(homes.unpinned_because(), "");
}

// What a collective brings home, on a thread of its own and slowly, is waited for before the berth has another unit.
TEST(GradientHomes, ABerthIsFreeWhenItsLastUnitIsHome) {
  std::vector<std::unique_ptr<Group>> groups = make_thread_groups(1, std::chrono::seconds(60));
  Homes gradients(1, {1, 1, 1}, std::move(groups[0]));
  GradientHomes& homes = gradients.homes();
  homes.begin_micro_step(false);
  Handle last;
  for (int unit = 0; unit < 3; ++unit) {
    std::byte* const here = homes.berth(unit);
    *here = std::byte(7 + unit);
    ReduceScatter reduce;
    reduce.after = [&homes, unit, here] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      *homes.home(unit) = *here;
    };
    last = gradients.group->reduce_scatter(std::move(reduce));
    homes.leave(unit, {last});
  }
  last.wait();
  for (int unit = 0; unit < 3; ++unit) EXPECT_EQ(static_cast<int>(*homes.home(unit)), 7 + unit);
}

TEST(GradientHomes, WaitsForThemHaveAName) {
  const auto name = std::make_shared<std::string>();
  testing::FarQueue queue;
  queue.streams = [&] { return std::make_unique<testing::NamedCopyStreams>(name); };
  const std::unique_ptr<Group> group = make_single_group();
  const GradientHomes homes({1, 1}, 1, *group, queue, std::make_shared<Ledger>());
  EXPECT_EQ(*name, "host: gradients");
}

}  // namespace
}  // namespace shoal
