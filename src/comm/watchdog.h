// Keeps the promise of a timeout where no host waits: a thread that looks at the collectives under way on one GPU
// stream and ends them when they cannot end by themselves.
//
// [Note: how a stuck stream ends]
// A collective is stuck when it has begun on the GPU and is not over within the timeout; when it has been under way for
// a second and a rank is gone; or when any rank has written down that the world ends. Then, in this order: the alarm is
// raised, so that threads of this rank that wait for the GPU throw; the failure is written down for the other ranks;
// and a moment later the stream is made to go on (NCCL aborts), for memory cannot be freed behind work that hangs. The
// moment lets those who wait leave the CUDA runtime first: freeing memory there may hold up every other call.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "comm/fate.h"
#include "comm/watch.h"
#include "device/alarm.h"

namespace shoal {

class Watchdog {
 public:
  struct Options {
    int rank = 0;
    Timeout timeout = kDefaultTimeout;
    std::shared_ptr<Fate> fate;            // null: nobody else is there
    std::shared_ptr<Alarm> alarm;          // shared with those who wait
    std::function<void()> prepare;         // the thread's first call
    std::function<std::string()> trouble;  // what the transport of the GPUs says is wrong, as a cause; empty: nothing
    std::function<void()> stop;            // makes the stream go on
  };
  explicit Watchdog(Options options);
  // What is still under way is left alone.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // See Watch::add. Wakes nobody but a thread that had nothing to look at.
  void watch(std::string at, std::shared_ptr<Watch::Probe> probe);
  // How often it has looked.
  int64_t looks() const { return looks_; }

 private:
  struct Finding {
    Failure failure;
    std::string at;  // what this rank's oldest collective is
    bool own = false;
  };
  void run();
  std::optional<Finding> look();
  void end(const Finding& finding);

  Options options_;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  Watch watch_;
  bool leaving_ = false;
  bool ended_ = false;
  std::atomic<int64_t> looks_{0};
  std::thread thread_;
};

}  // namespace shoal
