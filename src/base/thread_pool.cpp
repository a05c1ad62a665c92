// See thread_pool.h.
#include "base/thread_pool.h"

#include <algorithm>
#include <system_error>

namespace shoal {

// A system that gives no more threads leaves the pool with fewer: the caller of run() is always one of them.
ThreadPool::ThreadPool(int threads) {
  try {
    for (int i = 1; i < threads; ++i) threads_.emplace_back([this] { serve(); });
  } catch (const std::system_error&) {
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  begun_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::run(int64_t numel, int64_t grain, const std::function<void(int64_t, int64_t)>& work) {
  if (numel <= 0) return;
  const auto share = (numel + static_cast<int64_t>(threads_.size())) / (static_cast<int64_t>(threads_.size()) + 1);
  const int64_t span = std::max(share, grain);
  if (threads_.empty() || span >= numel) return work(0, numel);
  const std::unique_lock caller(one_caller_, std::try_to_lock);
  if (!caller.owns_lock()) return work(0, numel);
  std::unique_lock lock(mutex_);
  loop_ = {&work, numel, span, 0, 0, nullptr};
  begun_.notify_all();
  take_spans(lock);
  ended_.wait(lock, [this] { return loop_.working == 0; });
  const std::exception_ptr error = loop_.error;
  loop_ = {};
  lock.unlock();
  if (error) std::rethrow_exception(error);
}

void ThreadPool::take_spans(std::unique_lock<std::mutex>& lock) {
  while (loop_.next < loop_.numel) {
    const int64_t begin = loop_.next;
    const int64_t end = std::min(loop_.numel, begin + loop_.span);
    loop_.next = end;
    ++loop_.working;
    const auto& work = *loop_.work;
    lock.unlock();
    std::exception_ptr error;
    try {
      work(begin, end);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    --loop_.working;
    if (error && !loop_.error) loop_.error = error;
  }
}

void ThreadPool::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    begun_.wait(lock, [this] { return stopping_ || loop_.next < loop_.numel; });
    if (stopping_) return;
    take_spans(lock);
    if (loop_.working == 0) ended_.notify_all();
  }
}

}  // namespace shoal
