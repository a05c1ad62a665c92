// See include/shoal/device.h.
#include <fmt/format.h>

#include "aten/fp32_products.h"
#include "aten/half_copies.h"
#include "kernels/narrow_arithmetic.h"
#include "shoal/device.h"

namespace shoal {

std::string prepare_products(at::Device device, DType dtype) {
  if (!device.is_cpu()) return "";
  const std::string why = kernels::why_no_arithmetic(dtype);
  if (why.empty()) return "";
  aten::make_products_in_fp32(dtype == DType::f16 ? at::kHalf : at::kBFloat16);
  if (dtype == DType::f16) aten::convert_half_quickly();
  return fmt::format("{}: products in fp32, {}", name_of(dtype), why);
}

}  // namespace shoal
