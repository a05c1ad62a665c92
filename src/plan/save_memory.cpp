// See save_memory.h.
#include "plan/save_memory.h"

#include <algorithm>

#include "plan/memory.h"

namespace shoal {

size_t picture_nbytes(size_t saved, size_t most) {
  return std::min(in_pages(saved), std::max(most / kDiskPage * kDiskPage, kLeastPicture));
}

size_t unasked_picture(const HostShare& share) {
  const size_t half = share.free / 2;
  if (!share.budget) return half;
  return std::min(half, *share.budget - std::min(*share.budget, share.held));
}

}  // namespace shoal
