#include <gtest/gtest.h>

#include "kernels/narrow_arithmetic.h"
#include "shoal/device.h"

namespace shoal {
namespace {

TEST(PrepareProducts, SaysWhatItChangedAndWhy) {
  EXPECT_EQ(prepare_products(at::kCPU, DType::f32), "");
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const std::string why = kernels::why_no_arithmetic(dtype);
    const std::string said = prepare_products(at::kCPU, dtype);
    EXPECT_EQ(said, why.empty() ? "" : std::string(name_of(dtype)) + ": products in fp32, " + why);
    EXPECT_EQ(prepare_products(at::Device(at::kCUDA, 0), dtype), "");
  }
}

}  // namespace
}  // namespace shoal
