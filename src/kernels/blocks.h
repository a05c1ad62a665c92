// Elements in blocks of few bits, for their way between ranks: quantized and back. See [Note: blocks] in layout/wire.h.
//
// A block, numbers in the machine's byte order:
//   scale    float
//   numbers  of 8 bits: 128 of them, int8, -127 to 127
//            of 4 bits: 64 bytes; the low half of byte j is number j, the high half number j + 64, -7 to 7 in two's
//            complement
//
// scale = max(largest magnitude / 127 (or 7), 2^-126), or the float below where 127 of it would be infinite; number =
// element * (1 / scale) rounded to nearest even, and back: element = number * scale, each step in fp32. So a zero, of
// either sign, comes back as +0, an element below 2^-127 may come back as 0, and no element is wrong by more than half
// a scale and its dtype's rounding. An element that is not finite makes the block's scale NaN, and all elements of the
// block come back as NaN: nothing is hidden.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/reduce.h"
#include "layout/wire.h"
#include "shoal/dtype.h"

namespace shoal::kernels {

// What a last block lacks counts as zero. `blocks` may begin where `values` begins, if no block is longer than its
// elements: each is read before it is written.
void quantize(const void* values, DType dtype, int64_t numel, int bits, void* blocks);
// Values rounded to the dtype. `blocks` may end where `values` ends, if there are whole blocks only.
void dequantize(const void* blocks, int bits, void* values, DType dtype, int64_t numel);

// [Note: error feedback]
// LoCo (DeepSpeed's zeropp_loco_param): what rounding took from an element is given back to the same element of later
// sums. sent = value + error is quantized, and error = keep * error + (1 - keep) * (sent - sent as it arrives), in
// fp32, kept in bf16. A block with an element that is not finite leaves the errors as they are: the step is skipped.
struct ErrorFeedback {
  void* errors = nullptr;  // bf16, one an element
  float keep = 0;          // err_beta
  bool forgets = false;    // errors so far count as zero
};
void quantize_with_errors(const float* values, int64_t numel, int bits, void* blocks, const ErrorFeedback& feedback);

// The fold of reduce.h over elements that came in blocks: fold.source_count slices of them, `slice_nbytes` apart, each
// as dequantized to fp32. The fold's own sources are not looked at, and it has no groups.
struct BlockFold {
  const void* slices = nullptr;
  size_t slice_nbytes = 0;
  int bits = 8;
  OrderedFold fold;
};
// Throws unless the arguments fit together.
void check(const BlockFold& args);
void fold_blocks(const BlockFold& args);

}  // namespace shoal::kernels
