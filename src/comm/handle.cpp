// See handle.h.
#include "comm/handle.h"

#include <chrono>
#include <utility>

namespace shoal {

void Handle::State::finish(std::exception_ptr outcome, std::function<void()> joining) {
  std::shared_ptr<const void> dropped;
  {
    const std::lock_guard lock(mutex);
    dropped = std::move(keep);
  }
  // Outside the lock, as what it holds may take locks of its own; before `done`, so that who waits finds it gone.
  dropped.reset();
  {
    const std::lock_guard lock(mutex);
    error = std::move(outcome);
    join = std::move(joining);
    done = true;
  }
  changed.notify_all();
}

void Handle::wait() const {
  if (!state_) return;
  std::unique_lock lock(state_->mutex);
  if (!state_->done) {
    const auto begin = std::chrono::steady_clock::now();
    state_->changed.wait(lock, [this] { return state_->done; });
    const std::chrono::nanoseconds held_up = std::chrono::steady_clock::now() - begin;
    if (state_->waited) *state_->waited += held_up.count();
  }
  if (state_->error) std::rethrow_exception(state_->error);
  if (state_->join) state_->join();
}

bool Handle::done() const {
  if (!state_) return true;
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

}  // namespace shoal
