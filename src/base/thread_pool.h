// Threads that share a loop with their caller. Torch's own parallel_for is no help here: it is a header that only runs
// in parallel where it is compiled with OpenMP, and a second OpenMP runtime beside the wheel's own is worth avoiding.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace shoal {

class ThreadPool {
 public:
  // The caller of run() is one of the `threads`; with 1 there are no others.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Calls work(begin, end) for spans that cover [0, numel), each at least `grain` long but the last, and returns when
  // all are done; throws what one of them threw. A caller who finds another at it does his loop alone. Not from inside
  // `work`.
  void run(int64_t numel, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& work);

 private:
  // A loop that is being run. Spans are handed out one by one.
  struct Loop {
    const std::function<void(int64_t, int64_t)>* work = nullptr;
    int64_t numel = 0;
    int64_t span = 1;
    int64_t next = 0;  // first element that nobody has taken
    int working = 0;   // threads inside `work`
    std::exception_ptr error;
  };

  void serve();
  // Takes spans until none is left; called and left with the lock held.
  void take_spans(std::unique_lock<std::mutex>& lock);

  std::mutex one_caller_;
  std::mutex mutex_;
  std::condition_variable begun_, ended_;
  Loop loop_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace shoal
