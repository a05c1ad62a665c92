#include "aten/half_copies.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

namespace shoal::aten {
namespace {

using at::Tensor;

std::vector<Tensor> cases() {
  const Tensor wide = at::randn({7, 1200}).mul(at::logspace(-9, 5, 1200));
  const Tensor narrow = wide.to(at::kHalf);
  return {
      wide,   wide.t(),   wide.slice(1, 0, 1200, 2),   wide[0].expand({3, 1200}),         at::randn({}), at::empty({0}),
      narrow, narrow.t(), narrow.slice(1, 0, 1200, 2), at::full({5}, INFINITY, at::kHalf)};
}

TEST(HalfCopies, GiveTorchsOwnBits) {
  torch::manual_seed(1);
  std::vector<Tensor> wanted, found;
  const auto convert = [](const Tensor& given) {
    return given.to(given.scalar_type() == at::kHalf ? at::kFloat : at::kHalf);
  };
  for (const Tensor& given : cases()) wanted.push_back(convert(given));
  convert_half_quickly();
  convert_half_quickly();
  torch::manual_seed(1);
  for (const Tensor& given : cases()) found.push_back(convert(given));
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_TRUE(at::equal(found[i], wanted[i])) << "case " << i;
    EXPECT_EQ(found[i].strides(), wanted[i].strides()) << "case " << i;
  }
  // A copy into another order of memory, and one that autograd follows.
  const Tensor from = at::randn({3, 5});
  EXPECT_TRUE(at::equal(at::empty({5, 3}, at::kHalf).t().copy_(from), from.to(at::kHalf)));
  Tensor leaf = at::randn({4}).requires_grad_();
  leaf.to(at::kHalf).sum().backward();
  EXPECT_TRUE(at::equal(leaf.grad(), at::ones({4})));
}

}  // namespace
}  // namespace shoal::aten
