// A thread that does jobs in the order in which they were given. A channel has one; the groups split from it share it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace shoal {

class Worker {
 public:
  Worker();
  ~Worker();  // does what it was given before
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // The job throws nothing.
  void add(std::function<void()> job);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool leaving_ = false;
  std::thread thread_;
};

}  // namespace shoal
