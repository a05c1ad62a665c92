// See ring_layout.h.
#include "plan/ring_layout.h"

#include <algorithm>

#include "base/check.h"

namespace shoal {

namespace {

size_t in_granules(size_t nbytes) { return (nbytes + kRingGranule - 1) / kRingGranule * kRingGranule; }

}  // namespace

size_t ring_nbytes(const std::vector<size_t>& chunk_nbytes, size_t wanted) {
  size_t largest = 0, all = 0;
  for (const size_t nbytes : chunk_nbytes) {
    largest = std::max(largest, in_granules(nbytes));
    all += in_granules(nbytes);
  }
  if (wanted == kRingBegins) wanted = std::min(size_t{1} << 30, all / 8);
  return std::clamp(wanted / kRingGranule * kRingGranule, largest, all);
}

size_t grown_ring_nbytes(size_t ring, size_t free, size_t total, int ranks, size_t budget) {
  const auto shares = static_cast<size_t>(ranks);
  size_t more = free / shares / 2;
  if (budget > 0) {
    const size_t used = (total - free) / shares;
    more = std::min(more, budget > used ? budget - used : 0);
  }
  return ring + more;
}

std::vector<RingPlace> lay_ring(const std::vector<size_t>& chunk_nbytes, size_t ring) {
  const size_t count = chunk_nbytes.size();
  std::vector<RingPlace> places(count);
  size_t next = 0;
  for (size_t chunk = 0; chunk < count; ++chunk) {
    const size_t nbytes = in_granules(chunk_nbytes[chunk]);
    SHOAL_CHECK_LE(nbytes, ring);
    if (next + nbytes > ring) next = 0;
    places[chunk].offset = next;
    next += nbytes;
  }
  const auto overlap = [&](size_t a, size_t b) {
    return places[a].offset < places[b].offset + chunk_nbytes[b] &&
           places[b].offset < places[a].offset + chunk_nbytes[a];
  };
  for (size_t chunk = 0; chunk < count; ++chunk) {
    size_t before = chunk;
    do {
      before = (before + count - 1) % count;
    } while (before != chunk && !overlap(before, chunk));
    places[chunk].after = static_cast<int>(before);
  }
  return places;
}

}  // namespace shoal
