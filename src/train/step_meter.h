// What the steps of a run took on this rank: time by a user's clock, waits, bytes of its tiers. The time of a step ends
// where its result is known, not where it is read: results may be read late and several at once, and the times of all
// steps together are the time that passed.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>

#include "shoal/engine.h"
#include "train/metrics_file.h"
#include "train/step_exchange.h"

namespace shoal::train {

class StepMeter {
 public:
  using Clock = std::chrono::steady_clock;
  explicit StepMeter(const Engine& engine) : engine_(engine) {}

  // Steps begin, and none is under way: what came before counts in none.
  void start();
  // Now and then while steps are under way, with the oldest whose result was not known when it was last asked for.
  // True: it is known, and the caller asks about the next one.
  bool see(const PendingStep& step);
  // How many were seen to be known and were not taken.
  size_t seen() const { return ends_.size(); }

  void add_data(double seconds) { data_seconds_ += seconds; }
  void add_shared(double seconds) { shared_seconds_ += seconds; }
  // Since the first start.
  RankTimes totals() const;

  // The oldest step is read, and its losses are shared: fills in its times and bytes. `tokens` of the step.
  void take(int64_t tokens, StepMetrics& metrics);

 private:
  struct Mark {
    Clock::time_point time;
    CommTimes comm;
    double shared = 0, data = 0;
    HostTraffic host;
    DiskTraffic disk;
    Traffic traffic;
  };
  Mark now() const;

  const Engine& engine_;
  double data_seconds_ = 0, shared_seconds_ = 0;
  RankTimes all() const;
  bool started_ = false;
  RankTimes first_;        // at the first start
  Mark last_;              // the end of the step before
  std::deque<Mark> ends_;  // of steps that are known and not taken
};

// That torch's allocator held at most; 0 in host memory.
size_t peak_nbytes(at::Device device);

}  // namespace shoal::train
