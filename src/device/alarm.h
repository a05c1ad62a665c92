// Tells threads that wait for a GPU that what they wait for will not come. Who finds out raises it, from any thread;
// who waits heeds it and throws the same error. Nothing here knows CUDA.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace shoal {

class Alarm {
 public:
  // The first one counts.
  void raise(std::exception_ptr why);
  bool raised() const { return raised_.load(std::memory_order_acquire); }
  // Throws what it was raised with.
  void check() const;

 private:
  std::mutex mutex_;
  std::exception_ptr why_;  // written once, before raised_
  std::atomic<bool> raised_{false};
};

// Those that one queue heeds: one for each channel that may hold its stream back.
class Alarms {
 public:
  void add(std::shared_ptr<Alarm> alarm);  // null: none
  bool empty() const;
  // Throws what the first of them was raised with.
  void check() const;
  // Returns when `reached` says so. Without alarms that is `block`, which holds the thread until then; with them it
  // asks again and again, and throws when one is raised.
  void wait(const std::function<bool()>& reached, const std::function<void()>& block) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Alarm>> alarms_;  // shared with the channels, which may go before the queue
};

}  // namespace shoal
