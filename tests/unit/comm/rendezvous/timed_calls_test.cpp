#include "comm/rendezvous/timed_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace shoal {
namespace {

using namespace std::chrono_literals;

TEST(TimedCalls, ReturnsOrThrowsWhatTheCallDoes) {
  TimedCalls calls;
  EXPECT_EQ(calls.run([] { return std::string("answer"); }, 10s), "answer");
  EXPECT_THROW(calls.run([]() -> int { throw std::runtime_error("no"); }, 10s), std::runtime_error);
  calls.run([] {}, TimedCalls::Limit::max());
}

TEST(TimedCalls, RunsInOrderOnOneThread) {
  TimedCalls calls;
  const auto first = calls.run([] { return std::this_thread::get_id(); }, 10s);
  EXPECT_EQ(calls.run([] { return std::this_thread::get_id(); }, 10s), first);
  EXPECT_NE(first, std::this_thread::get_id());
}

TEST(TimedCalls, ACallThatHangsIsLeftAndThoseBehindItGetAMoment) {
  auto release = std::make_shared<std::promise<void>>();  // shared with the call that hangs
  TimedCalls calls;
  const auto hang = [released = release->get_future().share()] { released.wait(); };
  EXPECT_THROW(calls.run(hang, 10ms), TimedCalls::TimedOut);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(calls.run([] {}, 10min), TimedCalls::TimedOut);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1min);
  release->set_value();
  // When it is over after all, there is time again.
  for (bool answered = false; !answered;) {
    try {
      calls.run([] {}, 10s);
      answered = true;
    } catch (const TimedCalls::TimedOut&) {
    }
  }
}

TEST(TimedCalls, IsDestroyedWhileACallHangs) {
  auto release = std::make_shared<std::promise<void>>();
  auto held = std::make_shared<int>(1);  // what the call holds
  const std::weak_ptr<int> watched = held;
  {
    TimedCalls calls;
    auto begun = std::make_shared<std::promise<void>>();
    const auto hang = [released = release->get_future().share(), held, begun] {
      begun->set_value();
      released.wait();
    };
    EXPECT_THROW(calls.run(hang, 10ms), TimedCalls::TimedOut);
    begun->get_future().wait();  // a call that has not begun is dropped
  }
  held.reset();
  EXPECT_FALSE(watched.expired());
  release->set_value();
  while (!watched.expired()) std::this_thread::sleep_for(1ms);
}

}  // namespace
}  // namespace shoal
