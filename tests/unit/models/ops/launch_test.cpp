#include "models/ops/launch.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

namespace shoal::models::ops {

TEST(RunsFused, NeverOnTheCpu) {
  EXPECT_FALSE(runs_fused({at::empty({2})}));
  EXPECT_FALSE(runs_fused({at::empty({2}), at::empty({2}, at::kBFloat16)}));
  EXPECT_FALSE(runs_fused({at::empty({2}, at::kLong)}));
}

TEST(DTypeOf, KnowsTheThree) {
  EXPECT_EQ(dtype_of(at::empty({1}, at::kFloat)), DType::f32);
  EXPECT_EQ(dtype_of(at::empty({1}, at::kBFloat16)), DType::bf16);
  EXPECT_EQ(dtype_of(at::empty({1}, at::kHalf)), DType::f16);
  EXPECT_ANY_THROW(dtype_of(at::empty({1}, at::kDouble)));
}

}  // namespace shoal::models::ops
