#include "comm/group/handle.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/wait_log.h"
#include "shoal/error.h"

namespace shoal {
namespace {

TEST(Handle, OfNothingIsDone) {
  Handle handle;
  EXPECT_TRUE(handle.done());
  handle.wait();
}

TEST(Handle, KeepsItsErrorForEveryWait) {
  auto state = std::make_shared<Handle::State>();
  Handle handle(state);
  EXPECT_FALSE(handle.done());
  state->finish(std::make_exception_ptr(Error("test", "broken")));
  EXPECT_TRUE(handle.done());
  EXPECT_THROW(handle.wait(), Error);
  EXPECT_THROW(handle.wait(), Error);
}

TEST(Handle, IsOverInHostMemoryWhenItIsDone) {
  auto state = std::make_shared<Handle::State>();
  EXPECT_FALSE(Handle(state).over());
  state->finish(nullptr);
  EXPECT_TRUE(Handle(state).over());
  EXPECT_TRUE(Handle().over());
  Handle(state).wait_over();
}

TEST(Handle, WaitHoldsTheStreamBackAndWaitOverTheCaller) {
  auto state = std::make_shared<Handle::State>();
  int held_back = 0, blocked = 0;
  bool reached = false;
  state->finish(nullptr, {.hold_back = [&] { ++held_back; },
                          .over =
                              [&](bool block) {
                                blocked += block ? 1 : 0;
                                return reached;
                              }});
  const Handle handle(state);
  handle.wait();
  EXPECT_EQ(held_back, 1);
  EXPECT_EQ(blocked, 0);
  EXPECT_TRUE(handle.done());
  EXPECT_FALSE(handle.over());
  handle.wait_over();
  EXPECT_EQ(held_back, 1);
  EXPECT_EQ(blocked, 1);
  reached = true;
  EXPECT_TRUE(handle.over());
}

TEST(Handle, CountsAndLogsHowLongItsCallerWasHeldUp) {
  auto state = std::make_shared<Handle::State>();
  state->waited = std::make_shared<std::atomic<int64_t>>(0);
  WaitLog::of_process().begin();
  std::jthread worker([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    state->finish(nullptr);
  });
  Handle(state).wait();
  Handle(state).wait();
  const std::vector<Wait> waits = WaitLog::of_process().end();
  ASSERT_EQ(waits.size(), 1u) << "the second waited for nothing";
  EXPECT_EQ(waits[0].what, "ranks");
  EXPECT_GT(*state->waited, 0);
  EXPECT_NEAR(static_cast<double>(waits[0].end_ns - waits[0].begin_ns), static_cast<double>(*state->waited), 1e5);
}

TEST(Handle, LetsGoOfWhatItKeptBeforeItIsDone) {
  auto state = std::make_shared<Handle::State>();
  bool done_when_dropped = true;
  state->keep = std::shared_ptr<const void>(nullptr, [&](const void*) { done_when_dropped = Handle(state).done(); });
  state->finish(nullptr);
  EXPECT_FALSE(done_when_dropped);
  EXPECT_TRUE(Handle(state).done());
}

}  // namespace
}  // namespace shoal
