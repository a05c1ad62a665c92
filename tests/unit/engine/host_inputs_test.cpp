#include "engine/host_inputs.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "training/outcome.h"
#include "unit/engine/late_copy_streams.h"
#include "unit/optim/far_queue.h"
#include "unit/optim/named_copy_streams.h"

namespace shoal {

using testing::message_of;

namespace {

using Log = testing::LateCopyStreams::Log;

class HostInputsTest : public ::testing::Test {
 protected:
  HostInputsTest() {
    queue_.streams = [this] { return std::make_unique<testing::LateCopyStreams>(log_); };
    home_ = std::make_unique<HostInputs>(queue_, at::kCPU, ledger_);
  }

  static at::Tensor input(double value, int64_t numel = 6) {
    return at::arange(numel, at::kFloat).add(value).set_requires_grad(true);
  }
  // An input that nobody but its region keeps.
  std::shared_ptr<HostInputs::Offloaded> send(double value, int64_t numel = 6) {
    return home_->send({input(value, numel)});
  }
  void expect_back(HostInputs::Offloaded& offloaded, double value, int64_t numel = 6) {
    const std::vector<at::Tensor> got = home_->bring(offloaded);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_TRUE(got[0].equal(input(value, numel))) << got[0];
    EXPECT_FALSE(got[0].requires_grad());
  }
  size_t held() const { return ledger_->line(MemoryKind::host_inputs).nbytes; }

  testing::SpoilingAllocator allocator_;
  std::shared_ptr<Log> log_ = std::make_shared<Log>();
  std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();
  testing::FarQueue queue_;
  std::unique_ptr<HostInputs> home_;
};

TEST_F(HostInputsTest, WaitsForThemHaveAName) {
  const auto name = std::make_shared<std::string>();
  queue_.streams = [&] { return std::make_unique<testing::NamedCopyStreams>(name); };
  const HostInputs home(queue_, at::kCPU, ledger_);
  EXPECT_EQ(*name, "host: activations");
}

}  // namespace

TEST_F(HostInputsTest, ComeBackInBackwardEachOrderedOneRegionAhead) {
  std::vector<std::shared_ptr<HostInputs::Offloaded>> offloads;
  for (int region = 0; region < 4; ++region) offloads.push_back(send(region));
  EXPECT_EQ(*log_, (Log{"used 0", "out 0", "used 1", "out 1", "hold out 0", "used 2", "out 2", "hold out 1", "used 3",
                        "out 3"}));
  log_->clear();
  // The last two are still on the device.
  expect_back(*offloads[3], 3);
  EXPECT_EQ(*log_, Log{});
  offloads.pop_back();
  expect_back(*offloads[2], 2);
  EXPECT_EQ(*log_, (Log{"hold out 3", "follow", "in 1"}));
  offloads.pop_back();
  log_->clear();
  expect_back(*offloads[1], 1);
  EXPECT_EQ(*log_, (Log{"hold 1", "follow", "in 0"}));
  offloads.pop_back();
  log_->clear();
  expect_back(*offloads[0], 0);
  EXPECT_EQ(*log_, Log{"hold 0"});
}

TEST_F(HostInputsTest, TheDeviceHoldsTwoAtATime) {
  std::vector<std::shared_ptr<HostInputs::Offloaded>> offloads;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> memories;
  for (int region = 0; region < 6; ++region) {
    const at::Tensor x = input(region);
    memories.push_back(x.storage().getWeakStorageImpl());
    offloads.push_back(home_->send({x}));
    for (int other = 0; other <= region; ++other) {
      EXPECT_EQ(memories[static_cast<size_t>(other)].use_count() > 0, other > region - 2) << other << " at " << region;
    }
  }
}

TEST_F(HostInputsTest, EveryPassUsesTheSameHostMemory) {
  for (int pass = 0; pass < 3; ++pass) {
    std::vector<std::shared_ptr<HostInputs::Offloaded>> offloads;
    for (int region = 0; region < 5; ++region) offloads.push_back(send(10 * pass + region));
    EXPECT_EQ(held(), 5 * 6 * sizeof(float));
    for (int region = 4; region >= 0; --region) {
      expect_back(*offloads[static_cast<size_t>(region)], 10 * pass + region);
      offloads.pop_back();
    }
  }
  home_.reset();
  EXPECT_EQ(held(), 0u);
}

TEST_F(HostInputsTest, BatchesOfOtherSizesDoNotPileUp) {
  for (const int64_t numel : {6, 20, 3, 40, 40, 5, 39}) {
    std::vector<std::shared_ptr<HostInputs::Offloaded>> offloads;
    for (int region = 0; region < 3; ++region) offloads.push_back(send(region, numel));
    for (int region = 2; region >= 0; --region) {
      expect_back(*offloads[static_cast<size_t>(region)], region, numel);
      offloads.pop_back();
    }
  }
  EXPECT_EQ(held(), 3 * 40 * sizeof(float));
}

// A graph that is dropped, in forward and in the middle of backward; the next pass has its memory.
TEST_F(HostInputsTest, ABackwardThatNeverComesLeavesNothingBehind) {
  for (const int taken : {0, 1, 3, 4}) {
    std::vector<std::shared_ptr<HostInputs::Offloaded>> offloads;
    for (int region = 0; region < 5; ++region) offloads.push_back(send(region));
    for (int region = 4; region > 4 - taken; --region) expect_back(*offloads[static_cast<size_t>(region)], region);
    offloads.clear();
    for (int region = 0; region < 5; ++region) offloads.push_back(send(100 + region));
    for (int region = 4; region >= 0; --region) expect_back(*offloads[static_cast<size_t>(region)], 100 + region);
    EXPECT_EQ(held(), 5 * 6 * sizeof(float));
  }
}

TEST_F(HostInputsTest, OneThatIsOrderedAndDroppedIsWaitedForBeforeItsMemoryGoes) {
  std::vector<std::shared_ptr<HostInputs::Offloaded>> offloads;
  for (int region = 0; region < 4; ++region) offloads.push_back(send(region));
  expect_back(*offloads[2], 2);  // orders region 1
  log_->clear();
  offloads[1].reset();
  EXPECT_EQ(*log_, Log{"hold 1"});
}

TEST_F(HostInputsTest, MayBeBroughtAgain) {
  std::vector<std::shared_ptr<HostInputs::Offloaded>> offloads;
  for (int region = 0; region < 4; ++region) offloads.push_back(send(region));
  for (int time = 0; time < 2; ++time) {
    for (int region = 3; region >= 0; --region) expect_back(*offloads[static_cast<size_t>(region)], region);
  }
}

// As a region inside a region does: its inputs go and come back between two of the outer ones.
TEST_F(HostInputsTest, TripsMayBeginInTheMiddleOfBackward) {
  std::vector<std::shared_ptr<HostInputs::Offloaded>> outer;
  for (int region = 0; region < 4; ++region) outer.push_back(send(region));
  for (int region = 3; region >= 0; --region) {
    expect_back(*outer[static_cast<size_t>(region)], region);
    std::vector<std::shared_ptr<HostInputs::Offloaded>> inner;
    for (int i = 0; i < 4; ++i) inner.push_back(send(10 * region + i));
    for (int i = 3; i >= 0; --i) {
      expect_back(*inner[static_cast<size_t>(i)], 10 * region + i);
      inner.pop_back();
    }
    outer.pop_back();
  }
}

TEST_F(HostInputsTest, WhatNeedsNoGradientOrHasGapsStaysAsItIs) {
  const at::Tensor mask = at::ones({4}), gaps = at::arange(12, at::kFloat).view({3, 4}).slice(1, 0, 2);
  const at::Tensor turned = at::arange(12, at::kFloat).view({3, 4}).t().set_requires_grad(true);
  const std::vector<at::Tensor> inputs = {
      mask, {}, at::arange(3).set_requires_grad(false), gaps.detach().set_requires_grad(true), turned};
  const auto offloaded = home_->send(inputs);
  const auto later = send(1), last = send(2);
  EXPECT_EQ(held(), (12 + 6 + 6) * sizeof(float));
  const std::vector<at::Tensor> got = home_->bring(*offloaded);
  ASSERT_EQ(got.size(), 5u);
  EXPECT_EQ(got[0].data_ptr(), mask.data_ptr());
  EXPECT_FALSE(got[1].defined());
  EXPECT_TRUE(got[2].equal(at::arange(3)));
  EXPECT_EQ(got[3].data_ptr(), gaps.data_ptr());
  EXPECT_NE(got[4].data_ptr(), turned.data_ptr());
  EXPECT_EQ(got[4].strides(), turned.strides());
  EXPECT_TRUE(got[4].equal(turned));
}

TEST_F(HostInputsTest, TripsMayOutliveTheirHome) {
  std::vector<std::shared_ptr<HostInputs::Offloaded>> offloads;
  for (int region = 0; region < 4; ++region) offloads.push_back(send(region));
  expect_back(*offloads[2], 2);
  home_.reset();
  EXPECT_EQ(held(), 0u);
  offloads.clear();
}

TEST_F(HostInputsTest, HostMemoryThatCannotBeHadIsAnErrorAndLeavesTheRestWell) {
  const auto first = send(1), second = send(2);
  queue_.refuse_host_above(0);
  EXPECT_THAT(message_of([&] { send(3); }), ::testing::HasSubstr("[memory] none left"));
  expect_back(*second, 2);
  expect_back(*first, 1);
  queue_.refuse_host_above(SIZE_MAX);
  const auto third = send(3, 50);
  expect_back(*third, 3, 50);
}

}  // namespace shoal
