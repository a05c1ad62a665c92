// See timed_calls.h.
#include "comm/rendezvous/timed_calls.h"

#include <algorithm>
#include <deque>
#include <mutex>

namespace shoal {

namespace {

constexpr TimedCalls::Limit kMoment = std::chrono::milliseconds(200);
constexpr TimedCalls::Limit kLongest = std::chrono::hours(24 * 365);  // the clock's own limit is not far beyond

}  // namespace

struct TimedCalls::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> calls;
  bool busy = false;
  bool stuck = false;  // a call was not over in time, and still is not
  bool leaving = false;
  bool ended = false;
};

TimedCalls::TimedCalls() : state_(std::make_shared<State>()) {
  thread_ = std::thread([state = state_] { work(state); });
}

TimedCalls::~TimedCalls() {
  bool ended = false;
  {
    std::unique_lock lock(state_->mutex);
    state_->leaving = true;
    state_->changed.notify_all();
    ended = state_->changed.wait_for(lock, kMoment, [this] { return state_->ended; });
  }
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void TimedCalls::add(std::function<void()> call) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->calls.push_back(std::move(call));
  }
  state_->changed.notify_all();
}

TimedCalls::Limit TimedCalls::limit_now(Limit limit) const {
  const std::lock_guard lock(state_->mutex);
  return std::min(limit, state_->stuck ? kMoment : kLongest);
}

void TimedCalls::note_timeout() {
  const std::lock_guard lock(state_->mutex);
  state_->stuck = state_->busy || !state_->calls.empty();
}

void TimedCalls::work(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  for (;;) {
    state->changed.wait(lock, [&] { return state->leaving || !state->calls.empty(); });
    if (state->leaving) break;
    std::function<void()> call = std::move(state->calls.front());
    state->calls.pop_front();
    state->busy = true;
    lock.unlock();
    call();
    call = nullptr;  // what it holds may take a while to let go of
    lock.lock();
    state->busy = state->stuck = false;
  }
  state->calls.clear();
  state->ended = true;
  state->changed.notify_all();
}

}  // namespace shoal
