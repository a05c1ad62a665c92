// See in_place.h.
#include "kernels/in_place.h"

#include <algorithm>

#include "base/check.h"

namespace shoal::kernels {

std::vector<BlockSpan> spans_in_place(int64_t blocks, size_t block_nbytes, size_t elements_nbytes,
                                      int64_t at_once_blocks) {
  SHOAL_CHECK_GE(blocks, 0);
  const auto narrow = static_cast<int64_t>(block_nbytes), wide = static_cast<int64_t>(elements_nbytes);
  SHOAL_CHECK(narrow < wide && at_once_blocks * (wide - narrow) >= narrow, "blocks of {} bytes of {}", narrow, wide);
  std::vector<BlockSpan> spans;
  for (int64_t begin = 0; begin < blocks;) {
    // The blocks of a span end where its elements begin, at the latest.
    const int64_t end = begin == 0 ? at_once_blocks : begin * wide / narrow;
    spans.push_back({begin, std::min(end, blocks), begin == 0});
    begin = spans.back().end;
  }
  return spans;
}

}  // namespace shoal::kernels
