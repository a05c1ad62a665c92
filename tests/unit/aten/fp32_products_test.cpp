#include "aten/fp32_products.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <vector>

namespace shoal::aten {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

class Fp32Products : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    make_products_in_fp32(GetParam());
    make_products_in_fp32(GetParam());
    torch::manual_seed(3);
  }
  Tensor random(at::IntArrayRef sizes) const { return at::randn(sizes).to(GetParam()); }

  // The plain reference: the same function of the values in fp32, rounded once. Bits are equal where the product is
  // made in one block.
  void expect_one_rounding(const Tensors& given, const std::function<Tensor(const Tensors&)>& product) const {
    const Tensor made = product(given);
    EXPECT_EQ(made.scalar_type(), GetParam());
    EXPECT_TRUE(at::equal(made, product(in_fp32(given)).to(GetParam())));
  }
  static Tensors in_fp32(const Tensors& given) {
    Tensors wide;
    for (const Tensor& tensor : given) wide.push_back(tensor.to(at::kFloat));
    return wide;
  }
};

TEST_P(Fp32Products, RoundOnce) {
  const auto mm = [](const Tensors& t) { return at::mm(t[0], t[1]); };
  for (const auto& [m, k, n] :
       std::vector<std::array<int64_t, 3>>{{1, 1, 1}, {3, 5, 7}, {64, 192, 512}, {1, 300, 40}}) {
    expect_one_rounding({random({m, k}), random({k, n})}, mm);
    expect_one_rounding({random({m, k}), random({n, k}).t()}, mm);
    expect_one_rounding({random({k, m}).t(), random({k, n})}, mm);
    expect_one_rounding({random({m, k}), random({n, k + 2}).narrow(1, 1, k).t()}, mm);
    for (const Tensor& bias : {random({n}), random({m, n}), random({m, 1}), random({1})}) {
      expect_one_rounding({bias, random({m, k}), random({k, n})},
                          [](const Tensors& t) { return at::addmm(t[0], t[1], t[2], 0.5, 2); });
    }
    expect_one_rounding({random({m}), random({m, k}), random({k})},
                        [](const Tensors& t) { return at::addmv(t[0], t[1], t[2], 0.5, 2); });
    expect_one_rounding({random({2, m, k}), random({2, k, n})}, [](const Tensors& t) { return at::bmm(t[0], t[1]); });
    expect_one_rounding({random({2, m, n}), random({2, m, k}), random({2, k, n})},
                        [](const Tensors& t) { return at::baddbmm(t[0], t[1], t[2], 0.5, 2); });
  }
}

TEST_P(Fp32Products, AreMadeInBlocksOfAnyShape) {
  // Larger than a block on either side; exact in fp64, so only the last rounding and fp32's sums are between them.
  for (const auto& [m, k, n] : std::vector<std::array<int64_t, 3>>{{65, 33, 70001}, {70001, 33, 65}, {3, 70001, 5}}) {
    const Tensor a = random({m, k}), b = random({k, n});
    const Tensor exact = at::mm(a.to(at::kDouble), b.to(at::kDouble));
    const Tensor size =
        at::mm(a.to(at::kDouble).abs(), b.to(at::kDouble).abs());  // bounds the error of any order of sums
    const double half_unit = GetParam() == at::kHalf ? 0x1p-11 : 0x1p-8;
    const Tensor off = at::mm(a, b).to(at::kDouble).sub(exact).abs().sub(exact.abs().mul(half_unit * 1.001));
    EXPECT_LE(off.sub(size.mul(1e-5)).max().item<double>(), 0) << m << " " << k << " " << n;
  }
}

TEST_P(Fp32Products, WriteWhereTheyAreToldTo) {
  const Tensor a = random({6, 9}), b = random({9, 4}), start = random({6, 4});
  const Tensor product = at::mm(a, b), sum = at::addmm(start, a, b);
  Tensor out = at::empty({6, 4}, GetParam());
  EXPECT_TRUE(at::equal(at::mm_out(out, a, b), product));
  Tensor turned = at::empty({4, 6}, GetParam()).t();
  EXPECT_TRUE(at::equal(at::mm_out(turned, a, b), product));
  EXPECT_TRUE(at::equal(at::addmm_out(out, start, a, b), sum));
  EXPECT_TRUE(at::equal(start.clone().addmm_(a, b), sum));
  EXPECT_TRUE(at::equal(at::addmm(at::full({4}, NAN, GetParam()), a, b, 0), product));  // times zero: not read
  EXPECT_TRUE(at::equal(at::mv(a, b.t()[0].contiguous()), at::mm(a, b.narrow(1, 0, 1)).squeeze(1)));
  EXPECT_EQ(at::mm(a.narrow(1, 0, 0), b.narrow(0, 0, 0)).count_nonzero().item<int64_t>(), 0);
  EXPECT_ANY_THROW(at::mm(a, a));
  EXPECT_ANY_THROW(at::mm(a, b.to(at::kFloat)));
  EXPECT_ANY_THROW(at::bmm(random({2, 3, 4}), random({2, 3, 4})));
}

// Attention as torch computes it in fp32, forward and backward, with one rounding a result.
TEST_P(Fp32Products, AttentionAndItsGradientsRoundOnce) {
  const auto attend = [](const Tensors& given, const at::ScalarType dtype) {
    Tensors leaves;
    for (const Tensor& tensor : given) leaves.push_back(tensor.to(dtype).detach().requires_grad_());
    const Tensor y = at::scaled_dot_product_attention(leaves[0].transpose(1, 2), leaves[1].transpose(1, 2),
                                                      leaves[2].transpose(1, 2), {}, 0.0, /*is_causal=*/true);
    y.backward(at::ones_like(y));
    return Tensors{y.detach(), leaves[0].grad(), leaves[1].grad(), leaves[2].grad()};
  };
  const Tensors given = {random({2, 33, 4, 16}), random({2, 33, 4, 16}), random({2, 33, 4, 16})};
  const Tensors narrow = attend(given, GetParam()), wide = attend(given, at::kFloat);
  EXPECT_TRUE(at::equal(narrow[0], wide[0].to(GetParam())));
  for (size_t i = 1; i < narrow.size(); ++i) {  // from an output that was rounded
    EXPECT_EQ(narrow[i].scalar_type(), GetParam());
    EXPECT_LT(narrow[i].to(at::kFloat).sub(wide[i]).abs().max().item<double>(), 0.05) << i;
  }
}

TEST_P(Fp32Products, AutogradGoesThroughThem) {
  Tensor x = random({5, 7}).requires_grad_(), weight = random({3, 7}).requires_grad_(),
         bias = random({3}).requires_grad_();
  const Tensor dy = random({5, 3});
  at::linear(x, weight, bias).backward(dy);
  EXPECT_TRUE(at::equal(x.grad(), at::mm(dy.to(at::kFloat), weight.detach().to(at::kFloat)).to(GetParam())));
  EXPECT_TRUE(at::equal(weight.grad(), at::mm(dy.t().to(at::kFloat), x.detach().to(at::kFloat)).to(GetParam())));
}

TEST_P(Fp32Products, LeaveOneDnnOn) {
  // A product that torch attempts without the instructions switches oneDNN off for the process, and fp32 rounds another
  // way from then on.
  const Tensor a = at::randn({64, 64});
  const Tensor before = at::mm(a, a);
  at::mm(a.to(GetParam()), a.to(GetParam()));
  EXPECT_TRUE(at::equal(at::mm(a, a), before));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Fp32Products, ::testing::Values(at::kBFloat16, at::kHalf),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

}  // namespace
}  // namespace shoal::aten
