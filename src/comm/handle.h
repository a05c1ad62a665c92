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

struct Handle::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr error;
  std::shared_ptr<const void> keep;  // dropped on completion
  // What else a caller of wait() does once the collective is under way on a GPU: holds his stream back until it is
  // over.
  std::function<void()> join;
  // Nanoseconds that callers of wait() were held up; shared by all handles of a group, which may go before them.
  std::shared_ptr<std::atomic<int64_t>> waited;

  void finish(std::exception_ptr outcome, std::function<void()> join = nullptr);
};

}  // namespace shoal
