// How long a GPU's stream stands still for what another stream brings it: copies of host memory, collectives. Each time
// is in the process's log of waits, while that is on.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/wait_log.h"
#include "device/cuda.h"
#include "device/cuda_clock.h"

namespace shoal {

// Of one stream, which outlives it. Threads may hold and count at the same time.
class CudaStalls {
 public:
  CudaStalls(int device, cuda::StreamHandle stream) : device_(device), stream_(stream) {}

  // What it stands still for, as the log of waits calls it. Until then it logs nothing.
  void log_as(const std::string& what);

  // The stream will get nothing before the next hold(): what it stands still counts from here.
  void stop();
  // No hold() comes: it did not.
  void forget_stop();
  // The stream runs nothing that it is given later before this point is reached. Counts from stop(), or from here.
  void hold(const cuda::Event& until);

  // How long the stream has stood still so far, where it has gone on. Waits for nothing.
  double held_seconds();
  // The same since the last call of this.
  double newly_held_seconds();

 private:
  struct Stall {
    cuda::Event stopped{cuda::Event::Kind::timed}, went_on{cuda::Event::Kind::timed};
  };
  void stop_locked();
  void count_locked();
  void log_locked(const Stall& stall, double seconds);

  int device_;
  cuda::StreamHandle stream_;
  std::mutex mutex_;
  std::unique_ptr<Stall> stopped_;             // begun
  std::deque<std::unique_ptr<Stall>> stalls_;  // in the stream's order, from the first that is not counted
  std::vector<std::unique_ptr<Stall>> free_;
  double held_seconds_ = 0, told_seconds_ = 0;
  std::string what_;
  std::optional<CudaClock> clock_;  // of one period of the log
  uint64_t clock_period_ = 0;
  WaitLog::Lookout lookout_{WaitLog::of_process(), [this] { held_seconds(); }};  // last: it looks at the rest
};

}  // namespace shoal
