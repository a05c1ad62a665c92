// CopyStreams on which what goes out arrives only when somebody waits for it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "unit/device/quiet_copy_streams.h"

namespace shoal::testing {

class LateCopyStreams final : public QuietCopyStreams {
 public:
  void copy_in(int, std::byte* to, const std::byte* from, size_t nbytes, int after) override {
    if (after >= 0) land(after);
    std::memcpy(to, from, nbytes);
  }
  void hold_queue_out(int chunk) override { land(chunk); }
  void copy_out(int chunk, std::byte* to, const std::byte* from, size_t nbytes) override {
    under_way_.push_back({chunk, to, from, nbytes});
  }
  void wait_out(int chunk) override { land(chunk); }

 private:
  struct Copy {
    int chunk;
    std::byte* to;
    const std::byte* from;
    size_t nbytes;
  };
  // That of the chunk and those that were given before it.
  void land(int chunk) {
    const auto is_it = [&](const Copy& copy) { return copy.chunk == chunk; };
    const auto found = std::find_if(under_way_.begin(), under_way_.end(), is_it);
    if (found == under_way_.end()) return;
    for (auto copy = under_way_.begin(); copy <= found; ++copy) std::memcpy(copy->to, copy->from, copy->nbytes);
    under_way_.erase(under_way_.begin(), found + 1);
  }

  std::vector<Copy> under_way_;
};

}  // namespace shoal::testing
