// See ferry.h.
#include "device/ferry.h"

#include <chrono>
#include <utility>

namespace shoal {

namespace {

// Copies that a wire has at one time: one that runs, and one that keeps it from standing still.
constexpr size_t kUnderWay = 2;

class Waiting {
 public:
  explicit Waiting(double& seconds) : seconds_(seconds) {}
  ~Waiting() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

Ferry::Ferry(std::unique_ptr<Wires> wires, int chunks)
    : wires_(std::move(wires)), brings_(static_cast<size_t>(chunks)), returns_(static_cast<size_t>(chunks)) {
  in_.thread = std::thread([this] { serve(in_); });
  out_.thread = std::thread([this] { serve(out_); });
}

Ferry::~Ferry() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  in_.thread.join();
  out_.thread.join();
}

void Ferry::pin(std::byte* host, size_t nbytes) {
  const std::lock_guard lock(mutex_);
  in_.orders.push_back({.copy = {host, nullptr, nbytes}, .pins = true});
  ++in_.ordered;
  changed_.notify_all();
}

void Ferry::bring(int chunk, const Copy& copy, int after) {
  const std::lock_guard lock(mutex_);
  check();
  in_.orders.push_back({chunk, copy, after, after < 0 ? 0 : returns_[static_cast<size_t>(after)]});
  brings_[static_cast<size_t>(chunk)] = ++in_.ordered;
  in_.last = chunk;
  counters_.brought_nbytes += copy.nbytes;
  changed_.notify_all();
}

void Ferry::begin_use(int chunk) {
  {
    std::unique_lock lock(mutex_);
    const Waiting waiting(counters_.waited_seconds);
    changed_.wait(lock, [&] { return failure_ || in_.begun >= brings_[static_cast<size_t>(chunk)]; });
    check();
  }
  wires_->hold_queue(chunk);
}

void Ferry::take_back(int chunk, const Copy& copy) {
  wires_->mark_used(chunk);
  const std::lock_guard lock(mutex_);
  check();
  out_.orders.push_back({chunk, copy});
  returns_[static_cast<size_t>(chunk)] = ++out_.ordered;
  out_.last = chunk;
  counters_.taken_nbytes += copy.nbytes;
  changed_.notify_all();
}

void Ferry::settle() {
  std::unique_lock lock(mutex_);
  const Waiting waiting(counters_.waited_seconds);
  changed_.wait(lock, [&] { return failure_ || (in_.begun == in_.ordered && out_.begun == out_.ordered); });
  check();
  // A wire carries one after the other.
  if (in_.last >= 0) wires_->wait_in(in_.last);
  if (out_.last >= 0) wires_->wait_out(out_.last);
}

Ferry::Counters Ferry::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

std::string Ferry::unpinned_because() const {
  const std::lock_guard lock(mutex_);
  return unpinned_because_;
}

bool Ferry::next_order(Lane& lane, std::unique_lock<std::mutex>& lock, Order& order) {
  changed_.wait(lock, [&] {
    if (stopping_ || failure_) return true;
    return !lane.orders.empty() && out_.begun >= lane.orders.front().after_count;
  });
  if (stopping_ || failure_) return false;
  order = lane.orders.front();
  lane.orders.pop_front();
  return true;
}

void Ferry::serve(Lane& lane) {
  const auto wait = [&](int chunk) { &lane == &in_ ? wires_->wait_in(chunk) : wires_->wait_out(chunk); };
  try {
    wires_->begin_thread();
    std::deque<int> under_way;
    Order order;
    for (std::unique_lock lock(mutex_); next_order(lane, lock, order); ++lane.begun, changed_.notify_all()) {
      lock.unlock();
      if (under_way.size() == kUnderWay) {
        wait(under_way.front());
        under_way.pop_front();
      }
      const auto& [to, from, nbytes] = order.copy;
      std::string unpinned;
      if (order.pins) {
        unpinned = wires_->pin(to, nbytes);
      } else {
        under_way.push_back(order.chunk);
        if (&lane == &in_) {
          wires_->copy_in(order.chunk, to, from, nbytes, order.after);
        } else {
          wires_->copy_out(order.chunk, to, from, nbytes);
        }
      }
      lock.lock();
      if (order.pins) unpinned_because_ = std::move(unpinned);
    }
    for (const int chunk : under_way) wait(chunk);
  } catch (...) {
    fail();
  }
}

void Ferry::fail() {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::current_exception();
  changed_.notify_all();
}

void Ferry::check() const {
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace shoal
