// See narrow_arithmetic.h; on aarch64.
#include <sys/auxv.h>

#include "kernels/narrow_arithmetic.h"

namespace shoal::kernels {

std::string why_no_arithmetic(DType dtype) {
  constexpr unsigned long kBf16 = 1ul << 14;  // HWCAP2_BF16, which older headers do not have
  switch (dtype) {
    case DType::f32: return "";
    case DType::bf16: return (getauxval(AT_HWCAP2) & kBf16) != 0 ? "" : "this processor has no bf16 arithmetic";
    // Most have fp16, with sums in fp16; torch has no quick product with sums in fp32 for any of them.
    case DType::f16: return "torch has no fast fp16 products for this processor";
  }
  return "";
}

}  // namespace shoal::kernels
