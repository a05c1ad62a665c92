// Keeps the promise of a timeout where no host waits: a thread that looks at the collectives under way on one GPU
// stream and ends them when they cannot end by themselves.
//
// [Note: how a stuck stream ends]
// A collective is stuck when it has begun on the GPU and is not over within the timeout; when it has been under way for
// a second and a rank is gone; or when any rank has written down that the world ends. Then, in this order: the alarm is
// raised, so that threads of this rank that wait for the GPU throw; the failure is written down for the other ranks;
// and a moment later the stream is made to go on (NCCL aborts), for memory cannot be freed behind work that hangs. The
// moment lets those who wait leave the CUDA runtime first: freeing memory there may hold up every other call.
//
// [Note: a runtime that does not answer]
// For the same reason a question may not come back: a thread of this rank that frees memory behind a stuck collective
// can hold the runtime, and whoever asks for an event waits with it. So questions are asked on a thread of their own,
// and one that is not answered within the timeout is as good as a collective that is not over; meanwhile the other
// ranks are looked after as ever. Aborting needs no answer to take effect.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "comm/failure/fate.h"
#include "comm/failure/watch.h"
#include "device/alarm.h"

namespace shoal {

class Watchdog {
 public:
  struct Options {
    int rank = 0;
    Timeout timeout = kDefaultTimeout;
    // How long a collective is under way before a rank that is gone counts: one that has done its part of the last
    // collective may end before this one is through with it.
    Timeout overdue = std::chrono::seconds(1);
    // A question to the GPU that is not answered for so long, or for the timeout where that is longer, counts as
    // silence. On a busy machine a thread may begin late.
    Timeout shortest_silence = std::chrono::seconds(1);
    std::shared_ptr<Fate> fate;            // null: nobody else is there
    std::shared_ptr<Alarm> alarm;          // shared with those who wait
    std::function<void()> prepare;         // before questions to the GPU, in the thread that asks them
    std::function<std::string()> trouble;  // what the transport of the GPUs says is wrong, as a cause; empty: nothing
    std::function<void()> stop;            // makes the stream go on
    // How long an error of the transport, which names nobody, waits for one that does: see what_lies_behind.
    Timeout patience = kDeathPatience;
    // What a look found: the number of the oldest collective that is not over, 0 where none is, and whether it began.
    std::function<void(uint64_t sequence, bool begun)> looked = {};
    // Whom to blame for a collective that does not end, as a cause; empty: nobody is known to be.
    std::function<std::string(uint64_t sequence)> blame = {};
  };
  explicit Watchdog(Options options);
  // What is still under way is left alone.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // See Watch::add. Wakes nobody but a thread that had nothing to look at.
  void watch(std::string at, std::shared_ptr<Watch::Probe> probe, uint64_t sequence = 0);
  // How often it has looked.
  int64_t looks() const { return looks_; }

 private:
  struct Finding {
    Failure failure;
    std::string at;  // what this rank's oldest collective is
    bool own = false;
  };
  void run();
  // What is to be done about the oldest collective, if anything.
  std::optional<Finding> look(const std::string& oldest);
  struct Answer {
    std::optional<Watch::Oldest> oldest;  // of the oldest; nothing where all are over
    std::string failed;                   // what went wrong on the GPU, at which
    std::string failed_at;
  };
  Answer ask();
  // What ended the world or the transport elsewhere. Asks nothing of the GPU.
  std::optional<Finding> hear_of_others(const std::string& at, bool overdue, uint64_t sequence = 0);
  // With who is to blame, where that is known.
  Finding blame(const std::string& at, uint64_t sequence, const std::string& otherwise) const;
  Finding own(const std::string& at, const std::string& cause) const;
  void end(const Finding& finding);

  Options options_;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  Watch watch_;
  bool leaving_ = false;
  // Not of the mutex, which a look holds while it has no answer.
  std::atomic<bool> ended_{false};
  std::atomic<int64_t> looks_{0};
  std::future<Answer> question_;
  std::thread thread_;
};

}  // namespace shoal
