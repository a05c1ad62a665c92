// See alarm.h.
#include "device/alarm.h"

#include <chrono>
#include <thread>
#include <utility>

namespace shoal {

namespace {

// A wait that is soon over is not to be late by a sleep.
constexpr auto kWithoutSleep = std::chrono::microseconds(500);
constexpr auto kSleep = std::chrono::microseconds(50);

}  // namespace

void Alarm::raise(std::exception_ptr why) {
  const std::lock_guard lock(mutex_);
  if (raised()) return;
  why_ = std::move(why);
  raised_.store(true, std::memory_order_release);
}

void Alarm::check() const {
  if (raised()) std::rethrow_exception(why_);
}

void Alarms::add(std::shared_ptr<Alarm> alarm) {
  if (!alarm) return;
  const std::lock_guard lock(mutex_);
  alarms_.push_back(std::move(alarm));
}

bool Alarms::empty() const {
  const std::lock_guard lock(mutex_);
  return alarms_.empty();
}

void Alarms::check() const {
  const std::lock_guard lock(mutex_);
  for (const auto& alarm : alarms_) alarm->check();
}

void Alarms::wait(const std::function<bool()>& reached, const std::function<void()>& block) const {
  if (empty()) return block();
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    check();  // first: once one is raised, a call to the runtime may be held up by what clears the stream
    if (reached()) break;
    if (std::chrono::steady_clock::now() - begin < kWithoutSleep) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kSleep);
    }
  }
  check();  // a stream that was made to go on reaches the point too, without what it should have brought
}

}  // namespace shoal
