#include "train/device_copies.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

namespace shoal::train {

TEST(DeviceCopies, TokensLieInRows) {
  const at::Tensor tokens = tokens_on(at::kCPU, {1, 2, 3, 4, 5, 6}, 3);
  EXPECT_EQ(tokens.sizes().vec(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(tokens.scalar_type(), at::kLong);
  EXPECT_EQ(tokens[1][0].item<int64_t>(), 4);
}

TEST(DeviceCopies, ACopyHasNoGraphAndDoesNotChangeWithItsOriginal) {
  at::Tensor original = at::ones({2}).requires_grad_();
  const at::Tensor copy = to_host(original);
  EXPECT_FALSE(copy.requires_grad());
  original.detach().fill_(3);
  EXPECT_EQ(copy[0].item<float>(), 1);
}

}  // namespace shoal::train
