// How long a GPU's stream stands still for what another stream brings it: copies of host memory, collectives.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "device/cuda.h"

namespace shoal {

// Of one stream, which outlives it. Threads may hold and count at the same time.
class CudaHolds {
 public:
  CudaHolds(int device, cuda::StreamHandle stream) : device_(device), stream_(stream) {}

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
  struct Hold {
    cuda::Event stopped{cuda::Event::Kind::timed}, went_on{cuda::Event::Kind::timed};
  };
  void stop_locked();
  void count_locked();

  int device_;
  cuda::StreamHandle stream_;
  std::mutex mutex_;
  std::unique_ptr<Hold> stopped_;            // begun
  std::deque<std::unique_ptr<Hold>> holds_;  // in the stream's order, from the first that is not counted
  std::vector<std::unique_ptr<Hold>> free_;
  double held_seconds_ = 0, told_seconds_ = 0;
};

}  // namespace shoal
