// The doors of blocks.h: check the arguments once, then run the version that this machine uses.
#include "kernels/blocks.h"

#include "base/check.h"
#include "kernels/isa.h"

namespace shoal::kernels {

namespace {

void check(int64_t numel, int bits) {
  SHOAL_CHECK_GE(numel, 0);
  SHOAL_CHECK(bits == 8 || bits == 4, "blocks of {} bits", bits);
}

}  // namespace

void quantize(const void* values, DType dtype, int64_t numel, int bits, void* blocks) {
  check(numel, bits);
  active_kernels().blocks.quantize(values, dtype, numel, bits, blocks);
}

void dequantize(const void* blocks, int bits, void* values, DType dtype, int64_t numel) {
  check(numel, bits);
  active_kernels().blocks.dequantize(blocks, bits, values, dtype, numel);
}

void quantize_with_errors(const float* values, int64_t numel, int bits, void* blocks, const ErrorFeedback& feedback) {
  check(numel, bits);
  SHOAL_CHECK(feedback.errors != nullptr || numel == 0, "no memory for errors");
  active_kernels().blocks.quantize_with_errors(values, numel, bits, blocks, feedback);
}

}  // namespace shoal::kernels
