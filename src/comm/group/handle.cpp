// See handle.h.
#include "comm/group/handle.h"

#include <chrono>
#include <utility>

#include "base/wait_log.h"

namespace shoal {

void Handle::State::finish(std::exception_ptr outcome, Joining joining_in) {
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
    joining = std::move(joining_in);
    done = true;
  }
  changed.notify_all();
}

void Handle::State::await() {
  std::unique_lock lock(mutex);
  if (!done) {
    const auto begin = std::chrono::steady_clock::now();
    changed.wait(lock, [this] { return done; });
    const std::chrono::nanoseconds held_up = std::chrono::steady_clock::now() - begin;
    if (waited) {
      *waited += held_up.count();
      WaitLog::of_process().add_until_now("ranks", held_up);
    }
  }
  if (error) std::rethrow_exception(error);
}

// What is joined stays as it is once the collective is done.
void Handle::wait() const {
  if (!state_) return;
  state_->await();
  if (state_->joining.hold_back) state_->joining.hold_back();
}

void Handle::wait_over() const {
  if (!state_) return;
  state_->await();
  if (state_->joining.over) state_->joining.over(true);
}

bool Handle::over() const { return done() && (!state_ || !state_->joining.over || state_->joining.over(false)); }

bool Handle::done() const {
  if (!state_) return true;
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

}  // namespace shoal
