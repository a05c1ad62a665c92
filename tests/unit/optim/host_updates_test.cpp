#include "optim/host_updates.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "optim/group_steps.h"
#include "unit/device/quiet_copy_streams.h"
#include "unit/optim/far_queue.h"
#include "unit/optim/named_copy_streams.h"

namespace shoal {
namespace {

constexpr int kParts = 11;  // more than slots
constexpr int64_t kPartNumel = 37;

OptimizerConfig sgd_with_momentum() {
  OptimizerConfig config;
  config.kind = OptimizerKind::sgd;
  config.momentum = 0.5;
  return config;
}

GroupSteps sgd_steps(double lr) {
  StepNumbers numbers;
  numbers.step = 2;  // the first takes the gradient for the moment
  numbers.lrs = {lr};
  numbers.weight_decays = {0};
  return group_steps(sgd_with_momentum(), numbers);
}

// Copies are through when somebody waits for them, and not before.
class LazyCopyStreams final : public testing::QuietCopyStreams {
 public:
  void copy_in(int chunk, std::byte* to, const std::byte* from, size_t nbytes, int) override {
    const std::lock_guard lock(mutex_);
    in_[chunk].push_back({to, from, nbytes});
  }
  void copy_out(int chunk, std::byte* to, const std::byte* from, size_t nbytes) override {
    const std::lock_guard lock(mutex_);
    out_[chunk].push_back({to, from, nbytes});
  }
  void hold_queue(int chunk) override { carry(in_, chunk); }
  void hold_queue_out(int chunk) override { carry(out_, chunk); }
  void wait_in(int chunk) override { carry(in_, chunk); }
  void wait_out(int chunk) override { carry(out_, chunk); }

 private:
  struct Copy {
    std::byte* to;
    const std::byte* from;
    size_t nbytes;
  };
  using Copies = std::map<int, std::vector<Copy>>;
  void carry(Copies& copies, int chunk) {
    const std::lock_guard lock(mutex_);
    for (const Copy& copy : std::exchange(copies[chunk], {})) std::memcpy(copy.to, copy.from, copy.nbytes);
  }
  std::mutex mutex_;
  Copies in_, out_;
};

// fp32 weights and gradients "on a device", with one moment in host memory.
struct PartsOfHost {
  explicit PartsOfHost(bool lazy = false) {
    if (lazy) far.streams = [] { return std::make_unique<LazyCopyStreams>(); };
    std::vector<StateChunk> chunks;
    for (int i = 0; i < kParts; ++i) {
      StateChunk chunk;
      chunk.tier = Tier::host;
      chunk.end = kPartNumel;
      chunk.nbytes = kPartNumel * sizeof(float);
      chunks.push_back(chunk);
    }
    states = std::make_unique<StateMemory>(chunks, StateTiers{}, far, ledger);
    for (int i = 0; i < kParts; ++i) {
      parts.push_back({.chunk = i,
                       .weight = {reinterpret_cast<std::byte*>(weights[i]), sizeof weights[i]},
                       .grad = {reinterpret_cast<const std::byte*>(grads[i]), sizeof grads[i]}});
      for (int64_t e = 0; e < kPartNumel; ++e) grads[i][e] = static_cast<float>(i + 1);
    }
    updates = std::make_unique<HostUpdates>(far, *host, *states, ledger);
    set_parts(kParts);
  }

  void set_parts(int count) {
    updates->set_parts({parts.begin(), parts.begin() + count}, [&](int, const HostUpdates::Elements& elements) {
      kernels::Segment segment;
      segment.numel = kPartNumel;
      segment.weight = elements.weight;
      segment.grad = elements.grad;
      segment.first = reinterpret_cast<float*>(elements.states);
      return host->make_update_list({segment}, {0});
    });
  }

  // From now on parts may be updated ahead.
  void make_spares() {
    states->make_spares(ledger);
    updates = std::make_unique<HostUpdates>(far, *host, *states, ledger);
    updates->reserve_ahead(kParts * sizeof weights[0]);
    set_parts(kParts);
  }

  // The last so many parts, from the last on, with this rate; waits until they are.
  void update_ahead(int count, double lr) {
    const int64_t before = updates->ahead().updated_numel;
    for (int part = kParts - 1; part >= kParts - count; --part) {
      updates->update_ahead(part, [lr] { return std::optional(sgd_steps(lr)); });
    }
    while (updates->ahead().updated_numel < before + count * kPartNumel) std::this_thread::yield();
  }

  void run_round(std::optional<double> lr) {
    updates->begin(0, kParts, [lr] { return lr ? std::optional(sgd_steps(*lr)) : std::nullopt; });
    for (int part = 0; part < kParts; ++part) updates->finish(part);
  }

  void expect_weights(int chunk, float times) const {
    for (int64_t e = 0; e < kPartNumel; ++e) {
      ASSERT_FLOAT_EQ(weights[chunk][e], -times * static_cast<float>(chunk + 1)) << chunk << " " << e;
    }
  }

  float weights[kParts][kPartNumel] = {};
  float grads[kParts][kPartNumel] = {};
  std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
  testing::FarQueue far;
  std::unique_ptr<Queue> host = make_host_queue();
  std::unique_ptr<StateMemory> states;
  std::vector<HostUpdates::Part> parts;
  std::unique_ptr<HostUpdates> updates;  // last: its thread ends first
};

// Nothing of them moves, and no memory is taken for it.
TEST(HostUpdates, WhatIsInHostMemoryIsUpdatedThere) {
  for (const bool weights_too : {false, true}) {
    PartsOfHost training;
    for (HostUpdates::Part& part : training.parts) {
      part.grad.in_host = true;
      part.weight.in_host = weights_too;
    }
    training.updates = std::make_unique<HostUpdates>(training.far, *training.host, *training.states, training.ledger);
    training.set_parts(kParts);
    const size_t slots = training.ledger->line(MemoryKind::staging).nbytes;
    EXPECT_EQ(slots, weights_too ? 0u : 4u * 4096u) << "four slots of one page";
    training.updates->begin(0, kParts, [] { return std::optional(sgd_steps(1)); });
    for (int part = 0; part < kParts; ++part) {
      training.updates->finish(part);
      training.expect_weights(part, 1);
    }
  }
}

TEST(HostUpdates, ARoundUpdatesEveryPartOnceBeforeItIsFinished) {
  PartsOfHost training;
  float times = 0, moment = 0;
  for (int round = 0; round < 20; ++round) {
    training.updates->begin(0, kParts, [] { return std::optional(sgd_steps(1)); });
    moment = 0.5f * moment + 1;
    times += moment;
    EXPECT_TRUE(training.updates->in_round());
    for (int part = 0; part < kParts; ++part) {
      training.updates->finish(part);
      training.expect_weights(part, times);
    }
    EXPECT_FALSE(training.updates->in_round());
  }
}

TEST(HostUpdates, WaitsForEveryCopyBeforeItNeedsItsBytesOrItsPlace) {
  PartsOfHost training(/*lazy=*/true);
  float times = 0, moment = 0;
  for (int round = 0; round < 20; ++round) {
    training.updates->begin(0, kParts, [] { return std::optional(sgd_steps(1)); });
    moment = 0.5f * moment + 1;
    times += moment;
    for (int part = 0; part < kParts; ++part) {
      training.updates->finish(part);
      training.expect_weights(part, times);
    }
  }
}

TEST(HostUpdates, ARoundMayBeOfSomeParts) {
  PartsOfHost training;
  for (int part = 0; part < kParts; ++part) {
    training.updates->begin(part, part + 1, [] { return std::optional(sgd_steps(1)); });
    training.updates->finish(part);
    training.expect_weights(part, 1);
  }
  training.updates->begin(3, 3, [] { return std::optional(sgd_steps(1)); });
  EXPECT_FALSE(training.updates->in_round());
}

TEST(HostUpdates, WhoBeginsDoesNotWaitForTheDecision) {
  PartsOfHost training;
  std::promise<void> decided;
  training.updates->begin(0, kParts, [&] {
    decided.get_future().wait();
    return std::optional(sgd_steps(1));
  });
  training.expect_weights(0, 0);
  decided.set_value();
  for (int part = 0; part < kParts; ++part) training.updates->finish(part);
  training.expect_weights(kParts - 1, 1);
}

TEST(HostUpdates, ASkippedStepLeavesEverythingAsItIs) {
  PartsOfHost training;
  training.updates->begin(0, kParts, []() -> std::optional<GroupSteps> { return std::nullopt; });
  for (int part = 0; part < kParts; ++part) {
    training.updates->finish(part);
    training.expect_weights(part, 0);
  }
}

TEST(HostUpdates, AnErrorIsThrownWhereItsPartIsFinishedAndTheNextRoundIsWhole) {
  PartsOfHost training;
  training.updates->begin(0, kParts, []() -> std::optional<GroupSteps> { throw Error("the device", "is gone"); });
  EXPECT_THROW(training.updates->finish(0), Error);
  training.updates->abandon();
  EXPECT_FALSE(training.updates->in_round());
  training.updates->begin(0, kParts, [] { return std::optional(sgd_steps(1)); });
  for (int part = 0; part < kParts; ++part) training.updates->finish(part);
  training.expect_weights(kParts - 1, 1);
}

TEST(HostUpdates, AnAbandonedRoundEndsBeforeItsMemoryGoes) {
  PartsOfHost training;
  training.updates->begin(0, kParts, [] { return std::optional(sgd_steps(1)); });
  training.updates->finish(0);
  training.updates->abandon();
  EXPECT_FALSE(training.updates->in_round());
  training.expect_weights(kParts - 1, 1);
}

// Also one that follows others so closely that its thread has not looked up from the last.
TEST(HostUpdates, AnAbandonedRoundHasNotBeenForgotten) {
  PartsOfHost training;
  for (int turn = 0; turn < 200; ++turn) {
    for (int part = 0; part < 3; ++part) {
      training.updates->begin(part, part + 1, [] { return std::optional(sgd_steps(0)); });
      training.updates->finish(part);
    }
    std::atomic<bool> over = false;
    training.updates->begin(3, 4, [&]() -> std::optional<GroupSteps> {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      over = true;
      return std::nullopt;
    });
    training.updates->abandon();
    ASSERT_TRUE(over) << turn;
  }
}

// Any number of them, and steps that are as was assumed, others, and skipped ones.
TEST(HostUpdates, WhatWasUpdatedAheadIsTakenOverWhereTheStepIsTheAssumedOne) {
  for (const bool lazy : {false, true}) {
    for (const bool in_host : {false, true}) {
      PartsOfHost training(lazy);
      for (HostUpdates::Part& part : training.parts) part.weight.in_host = part.grad.in_host = in_host;
      training.make_spares();
      float times = 0, moment = 0;
      int64_t taken = 0;
      for (int round = 0; round < 60; ++round) {
        const int count = round * 5 % (kParts + 1);
        training.update_ahead(count, 1);
        for (int part = 0; part < kParts; ++part) training.expect_weights(part, times);  // nothing shows
        const bool skipped = round % 7 == 3, clipped = round % 4 == 1;
        training.run_round(skipped ? std::nullopt : std::optional(clipped ? 0.25 : 1.0));
        if (!skipped) {
          moment = 0.5f * moment + 1;
          times += (clipped ? 0.25f : 1.0f) * moment;
          if (!clipped) taken += count * kPartNumel;
        }
        for (int part = 0; part < kParts; ++part) training.expect_weights(part, times);
        ASSERT_EQ(training.updates->ahead().taken_numel, taken) << round;
      }
      EXPECT_GT(taken, 0);
      EXPECT_LT(taken, training.updates->ahead().updated_numel);
    }
  }
}

TEST(HostUpdates, ARoundDoesNotWaitForWhatMayBeUpdatedAhead) {
  PartsOfHost training;
  training.make_spares();
  float times = 0, moment = 0;
  for (int round = 0; round < 200; ++round) {
    for (int part = kParts - 1; part >= 0; --part) {
      training.updates->update_ahead(part, [] { return std::optional(sgd_steps(1)); });
    }
    training.run_round(1.0);
    moment = 0.5f * moment + 1;
    times += moment;
    for (int part = 0; part < kParts; ++part) training.expect_weights(part, times);
  }
}

// A device comes to its decision long after the round is begun.
TEST(HostUpdates, PartsAreUpdatedAheadUntilTheDecisionIsKnown) {
  PartsOfHost training;
  training.make_spares();
  std::promise<void> decided;
  std::atomic<bool> known = false;
  for (int part = kParts - 1; part >= 0; --part) {
    training.updates->update_ahead(part, [] { return std::optional(sgd_steps(1)); });
  }
  training.updates->begin(
      0, kParts,
      [&] {
        decided.get_future().wait();
        return std::optional(sgd_steps(1));
      },
      [&] { return known.load(); });
  while (training.updates->ahead().updated_numel < kParts * kPartNumel) std::this_thread::yield();
  training.expect_weights(0, 0);
  known = true;
  decided.set_value();
  for (int part = 0; part < kParts; ++part) {
    training.updates->finish(part);
    training.expect_weights(part, 1);
  }
  EXPECT_EQ(training.updates->ahead().taken_numel, kParts * kPartNumel);
}

TEST(HostUpdates, WhatIsForgottenIsUpdatedAnew) {
  PartsOfHost training;
  training.make_spares();
  training.update_ahead(kParts, 1);
  training.updates->forget_ahead();
  for (float& value : training.grads[4]) value *= 2;
  training.run_round(1.0);
  training.expect_weights(3, 1);
  training.expect_weights(4, 2);
  EXPECT_EQ(training.updates->ahead().taken_numel, 0);
}

// What cannot be updated ahead is updated in its round, and says there what is wrong.
TEST(HostUpdates, AnErrorAheadIsLeftToTheRound) {
  PartsOfHost training;
  training.make_spares();
  training.updates->update_ahead(2, []() -> std::optional<GroupSteps> { throw Error("the device", "is gone"); });
  training.run_round(1.0);
  training.expect_weights(2, 1);
}

TEST(HostUpdates, WithoutSparePlacesNothingIsUpdatedAhead) {
  PartsOfHost training;
  training.updates->update_ahead(2, [] { return std::optional(sgd_steps(1)); });
  training.run_round(1.0);
  training.expect_weights(2, 1);
  EXPECT_EQ(training.updates->ahead().updated_numel, 0);
}

TEST(HostUpdates, PartsChangeBetweenRounds) {
  PartsOfHost training;
  const size_t held = training.ledger->line(MemoryKind::staging).nbytes;
  training.set_parts(0);
  training.updates->reserve(1, 1);
  EXPECT_EQ(training.ledger->line(MemoryKind::staging).nbytes, held);
  training.set_parts(3);
  training.updates->reserve(100000, 1);  // also under parts
  EXPECT_GE(training.ledger->line(MemoryKind::staging).nbytes, held + 4 * 90000);
  EXPECT_EQ(training.updates->parts(), 0);
  training.far.refuse_host_above(4 * 200000);
  EXPECT_THROW(training.updates->reserve(300000, 1), Error);
  training.updates->begin(0, 0, [] { return std::optional(sgd_steps(1)); });
  training.set_parts(2);
  training.updates->begin(0, 2, [] { return std::optional(sgd_steps(1)); });
  for (const int part : {0, 1}) training.updates->finish(part);
  training.expect_weights(1, 1);
  training.expect_weights(2, 0);
}

TEST(HostUpdates, WaitsForThemHaveAName) {
  const auto name = std::make_shared<std::string>();
  PartsOfHost of;
  of.far.streams = [&] { return std::make_unique<testing::NamedCopyStreams>(name); };
  of.set_parts(kParts);
  EXPECT_EQ(*name, "host: updated weights");
}

}  // namespace
}  // namespace shoal
