// What was waited for, and when: a log that a trace switches on for a few steps. One a process, as the profiler is,
// for those who wait do not know who traces. While it is off, whoever waits pays one load.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <vector>

namespace shoal {

struct Wait {
  std::string what;                  // "host: states"
  int64_t begin_ns = 0, end_ns = 0;  // in unix time, as the profiler's events
};

// Any thread may call anything.
class WaitLog {
 public:
  static WaitLog& of_process();

  // 0: off. Else the number of begin(), for who keeps something for as long as the log is on.
  uint64_t period() const { return period_.load(std::memory_order_relaxed); }

  void begin();
  // The waits since begin(), by their begin. What lay before it, or is not over, is cut off.
  std::vector<Wait> end();

  // Nothing happens while it is off.
  void add(const std::string& what, int64_t begin_ns, int64_t end_ns);
  // Of a thread that has waited until now.
  void add_until_now(const std::string& what, std::chrono::nanoseconds waited);

  // For who learns of waits only when it looks: end() has it look first. It adds them in `look`, which may throw.
  class Lookout {
   public:
    Lookout(WaitLog& log, std::function<void()> look);
    // Waits for a look that is under way.
    ~Lookout();
    Lookout(const Lookout&) = delete;
    Lookout& operator=(const Lookout&) = delete;

   private:
    WaitLog& log_;
    std::list<std::function<void()>>::iterator place_;
  };

  static int64_t unix_now_ns();

 private:
  std::vector<Wait> stop(int64_t now_ns);

  std::atomic<uint64_t> period_ = 0;
  std::mutex lookouts_mutex_;  // taken before any other
  std::list<std::function<void()>> lookouts_;
  std::mutex mutex_;
  uint64_t begun_ = 0;
  int64_t begun_ns_ = 0;
  std::vector<Wait> waits_;
};

}  // namespace shoal
