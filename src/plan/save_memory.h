// How much host memory the picture of a save behind training takes: the planner, the banner of a run and the saver go
// by the same numbers. Pure.
#pragma once

#include <cstddef>
#include <optional>

namespace shoal {

// A save works with it, whatever it saves: the largest piece of a file, and the blocks that are being written.
inline constexpr size_t kLeastPicture = size_t{20} << 20;

// Bytes, in whole pages: all that the rank saves, but at most `most`, or kLeastPicture where that is more.
size_t picture_nbytes(size_t saved, size_t most);

// Of one rank.
struct HostShare {
  size_t free = 0;               // of the host's memory, the rank's part
  std::optional<size_t> budget;  // its part of shoal.host_budget
  size_t held = 0;               // of that budget, by states and weights
};
// The most that a picture takes where shoal.save_memory does not say: half of what is free, since data loaders, the
// page cache and other processes live of the rest, and no more than the budget leaves.
size_t unasked_picture(const HostShare& share);

}  // namespace shoal
