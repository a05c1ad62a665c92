// See save_memory.h.
#include "checkpoint/save_memory.h"

#include <algorithm>

#include "checkpoint/durable_file.h"

namespace shoal::checkpoint {

namespace {

size_t in_pages_up(size_t nbytes) { return (nbytes + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment; }

}  // namespace

size_t picture_nbytes(const PictureNeed& need, const std::function<size_t()>& free_nbytes) {
  const size_t whole = in_pages_up(static_cast<size_t>(need.state));
  const size_t least = in_pages_up(static_cast<size_t>(need.least));
  if (need.held >= whole) return need.held;
  const bool asked = need.asked > 0;
  if (!asked && need.held >= least && need.held > 0) return need.held;
  const size_t most = asked ? static_cast<size_t>(need.asked) : free_nbytes();
  return std::clamp(most / kDirectAlignment * kDirectAlignment, least, std::max(least, whole));
}

}  // namespace shoal::checkpoint
