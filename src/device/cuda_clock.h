// Where points of a GPU's work lie in the host's time, for what is shown beside what the host did.
#pragma once

#include <cstdint>
#include <memory>

#include "device/cuda.h"

namespace shoal {

class CudaClock {
 public:
  // Compares the two clocks now, by points on a stream of its own on which nothing else runs: right to a few dozen
  // microseconds, and for as long as the clocks keep pace, which is minutes.
  explicit CudaClock(int device);

  // Of a timed point that is reached, also of one before this object was made.
  int64_t unix_ns(const cuda::Event& point) const;

 private:
  std::unique_ptr<cuda::Event> anchor_;
  int64_t anchor_ns_ = 0;
};

}  // namespace shoal
