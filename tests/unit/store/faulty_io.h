// A BlockIo that does to each request what a test says: fails it, moves fewer bytes, delays it, or holds completions
// back and gives them in reversed order. What it lets through is done by real threads.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "store/block_io.h"

namespace shoal::testing {

// What becomes of one request.
struct Fault {
  int error_number = 0;       // not 0: nothing is moved, and this is the result
  size_t at_most = SIZE_MAX;  // bytes moved, it says; the pages among them that are whole were
  std::chrono::milliseconds delay{0};
};

// `index` counts the requests, continued ones too.
using FaultPlan = std::function<Fault(const BlockRequest& request, int index)>;

class FaultyIo final : public BlockIo {
 public:
  // Completions are given in reversed order, `reorder` at a time, or as many as have come when none comes any more.
  FaultyIo(int depth, FaultPlan plan, size_t reorder = 1)
      : plan_(std::move(plan)), reorder_(reorder), inner_(make_thread_io(depth)), thread_([this] { serve(); }) {}
  ~FaultyIo() override {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return unfinished_ == 0; });
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void start(BlockRequest request) override {
    Fault fault;
    {
      const std::lock_guard lock(mutex_);
      fault = plan_(request, index_++);
      ++unfinished_;
    }
    auto complete = [this, delay = fault.delay, done = std::move(request.done)](int64_t result) {
      {
        const std::lock_guard lock(mutex_);
        held_.push_back({std::chrono::steady_clock::now() + delay, [done, result] { done(result); }});
      }
      changed_.notify_all();
    };
    if (fault.error_number != 0) return complete(-fault.error_number);
    if (fault.at_most >= request.nbytes) {
      request.done = std::move(complete);
      return inner_->start(std::move(request));
    }
    const size_t whole_pages = fault.at_most / 4096 * 4096;  // O_DIRECT takes nothing else
    if (whole_pages == 0) return complete(static_cast<int64_t>(fault.at_most));
    request.nbytes = whole_pages;
    request.done = [complete, claimed = fault.at_most, whole_pages](int64_t result) {
      complete(result == static_cast<int64_t>(whole_pages) ? static_cast<int64_t>(claimed) : result);
    };
    inner_->start(std::move(request));
  }
  bool register_memory(std::byte*, size_t) override { return false; }
  std::string description() const override { return "faults"; }

 private:
  struct Held {
    std::chrono::steady_clock::time_point due;
    std::function<void()> give;
  };

  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !held_.empty(); });
      if (held_.empty()) return;
      changed_.wait_for(lock, std::chrono::milliseconds(20), [this] { return held_.size() >= reorder_; });
      std::vector<Held> batch;
      batch.swap(held_);
      lock.unlock();
      for (auto held = batch.rbegin(); held != batch.rend(); ++held) {
        std::this_thread::sleep_until(held->due);
        held->give();
      }
      const size_t given = batch.size();
      batch.clear();
      lock.lock();
      unfinished_ -= given;
      changed_.notify_all();
    }
  }

  const FaultPlan plan_;
  const size_t reorder_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Held> held_;
  size_t unfinished_ = 0;
  int index_ = 0;
  bool stopping_ = false;
  std::unique_ptr<BlockIo> inner_;
  std::thread thread_;
};

}  // namespace shoal::testing
