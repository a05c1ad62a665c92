// See cuda_clock.h.
#include "device/cuda_clock.h"

#include <cmath>
#include <utility>

#include "base/wait_log.h"

namespace shoal {

// The host sees the point soon after the GPU has reached it, where nothing held up either: so the quickest of some
// tries counts, and the time after it.
CudaClock::CudaClock(int device) {
  constexpr int kTries = 5;
  cuda::use_device(device);
  const cuda::Stream stream(cuda::Stream::Priority::high);
  int64_t shortest_ns = INT64_MAX;
  for (int i = 0; i < kTries; ++i) {
    auto point = std::make_unique<cuda::Event>(cuda::Event::Kind::timed);
    const int64_t before_ns = WaitLog::unix_now_ns();
    point->record(stream.handle());
    point->synchronize();
    const int64_t after_ns = WaitLog::unix_now_ns();
    if (after_ns - before_ns >= shortest_ns) continue;
    shortest_ns = after_ns - before_ns;
    anchor_ns_ = after_ns;
    anchor_ = std::move(point);
  }
}

int64_t CudaClock::unix_ns(const cuda::Event& point) const {
  return anchor_ns_ + std::llround(point.seconds_since(*anchor_) * 1e9);
}

}  // namespace shoal
