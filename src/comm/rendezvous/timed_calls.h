// Calls that may never return, on a thread of their own, so that who asks can stop waiting: c10d's clients wait for the
// server of a store without a deadline, and a server that hangs takes them with it. One a client; C10dStore holds it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>

namespace shoal {

class TimedCalls {
 public:
  using Limit = std::chrono::milliseconds;

  TimedCalls();
  // Where a call does not come back, its thread is left behind with all that the call holds.
  ~TimedCalls();
  TimedCalls(const TimedCalls&) = delete;
  TimedCalls& operator=(const TimedCalls&) = delete;

  struct TimedOut {};
  // What the call returns or throws. Throws TimedOut when it is not over in time: then it goes on by itself, so it owns
  // all that it uses. Calls behind one that was not over in time get a moment only, until it is over.
  template <class Call>
  auto run(Call call, Limit limit) {
    using Result = decltype(call());
    auto task = std::make_shared<std::packaged_task<Result()>>(std::move(call));  // shared with the thread
    auto result = task->get_future();
    add([task] { (*task)(); });
    if (result.wait_for(limit_now(limit)) == std::future_status::ready) return result.get();
    note_timeout();
    throw TimedOut();
  }

 private:
  struct State;
  void add(std::function<void()> call);
  Limit limit_now(Limit limit) const;
  void note_timeout();
  static void work(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this
  std::thread thread_;
};

}  // namespace shoal
