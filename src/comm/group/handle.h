// The state behind a Handle: made by a Group when a collective is issued, completed once by its worker.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

#include "shoal/group.h"

namespace shoal {

// Of a collective that was given to a GPU's stream.
struct Joining {
  std::function<void()> hold_back;       // holds the caller's stream back until it is over
  std::function<bool(bool block)> over;  // whether it is; `block`: waits until it is
};

struct Handle::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr error;
  std::shared_ptr<const void> keep;  // dropped on completion
  Joining joining;                   // empty in host memory
  // Nanoseconds that callers of wait() were held up; shared by all handles of a group, which may go before them.
  std::shared_ptr<std::atomic<int64_t>> waited;

  void finish(std::exception_ptr outcome, Joining joining_in = {});
  // Until it is done; throws what went wrong.
  void await();
};

}  // namespace shoal
