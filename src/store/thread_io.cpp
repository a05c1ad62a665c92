// See block_io.h: threads with pread and pwrite. The fallback where io_uring is not to be had, and the reference in
// tests.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "shoal/error.h"
#include "store/block_io.h"

namespace shoal {

namespace {

int64_t carry_out(const BlockRequest& request) {
  while (true) {
    const auto offset = static_cast<off_t>(request.offset);
    const ssize_t count = request.kind == BlockRequest::Kind::read
                              ? ::pread(request.fd, request.memory, request.nbytes, offset)
                              : ::pwrite(request.fd, request.memory, request.nbytes, offset);
    if (count >= 0) return count;
    if (errno != EINTR) return -errno;
  }
}

class ThreadIo final : public BlockIo {
 public:
  ThreadIo(int depth, std::string why) : why_(std::move(why)) {
    SHOAL_CHECK_GE(depth, 1);
    try {
      for (int i = 0; i < depth; ++i) threads_.emplace_back([this] { serve(); });
    } catch (const std::system_error& error) {
      const size_t made = threads_.size();
      stop();
      throw Error("config aio.queue_depth",
                  fmt::format("{} threads for the disk could be made of {}: {}. Give a smaller queue_depth.", made,
                              depth, error.what()));
    }
  }
  ~ThreadIo() override { stop(); }

  void start(BlockRequest request) override {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(request));
    }
    changed_.notify_one();
  }
  bool register_memory(std::byte*, size_t) override { return false; }
  std::string description() const override {
    return fmt::format("{} threads with pread and pwrite{}", threads_.size(), why_.empty() ? "" : " (" + why_ + ")");
  }

 private:
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      BlockRequest request = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      const int64_t result = carry_out(request);
      request.done(result);
      request = {};  // what `done` holds goes before the lock is taken
      lock.lock();
    }
  }

  const std::string why_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<BlockRequest> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<BlockIo> make_thread_io(int depth, const std::string& why) {
  return std::make_unique<ThreadIo>(depth, why);
}

}  // namespace shoal
