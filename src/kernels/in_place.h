// Blocks in the memory of the elements that they are made of, worked on by threads that run in no order, as a GPU's do:
// in which spans, one after the other, so that nothing is written before it is read. Pure; kernels/cuda/blocks.cu
// launches a kernel a span.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shoal::kernels {

// Blocks [begin, end), counted from the end of the memory that blocks and elements have in common: the first to the
// last where blocks are made of elements at the front, the last to the first where they become elements at the back.
struct BlockSpan {
  int64_t begin = 0;
  int64_t end = 0;
  bool at_once = false;  // all of it is read before anything is written; else what it writes lies behind what it reads

  bool operator==(const BlockSpan& other) const {
    return begin == other.begin && end == other.end && at_once == other.at_once;
  }
};

// In the order in which blocks are made; elements are made in the opposite one. `at_once_blocks`: as many as can be
// read before anything is written. Their number grows as the logarithm of `blocks`.
std::vector<BlockSpan> spans_in_place(int64_t blocks, size_t block_nbytes, size_t elements_nbytes,
                                      int64_t at_once_blocks);

}  // namespace shoal::kernels
