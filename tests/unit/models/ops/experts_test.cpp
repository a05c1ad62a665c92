#include "models/ops/experts.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "models/ops/norm.h"
#include "unit/models/ops/same.h"

namespace shoal::models::ops {

using testing::expect_same;
using testing::normal_tensor;
using testing::results_and_grads;
using testing::Tensors;

namespace {

constexpr int64_t kTokens = 10, kExperts = 5, kHidden = 16, kFfn = 24, kPerToken = 2;

// x, weights of choices, gate and up, down.
Tensors inputs_of(at::ScalarType dtype = at::kFloat) {
  return {normal_tensor({2, kTokens / 2, kHidden}, 1, dtype), normal_tensor({kTokens, kPerToken}, 2, dtype),
          normal_tensor({kExperts, 2 * kFfn, kHidden}, 3, dtype), normal_tensor({kExperts, kHidden, kFfn}, 4, dtype)};
}

// Nobody chooses expert 1; each token two others.
at::Tensor chosen() {
  at::Tensor made = normal_tensor({kTokens, kExperts}, 5);
  made.select(1, 1).fill_(-100);
  return std::get<1>(at::topk(made, kPerToken));
}

at::Tensor through(const Tensors& t, GroupedBy by) {
  return experts(t[0], make_routes(chosen(), t[1], kExperts), {t[2], t[3]}, by);
}

// Token by token, expert by expert.
at::Tensor plainly(const Tensors& t) {
  const at::Tensor picks = chosen(), x = t[0].flatten(0, 1);
  Tensors rows;
  for (int64_t token = 0; token < kTokens; ++token) {
    at::Tensor sum = at::zeros_like(x[token]);
    for (int64_t rank = 0; rank < kPerToken; ++rank) {
      const int64_t expert = picks[token][rank].item<int64_t>();
      const at::Tensor both = at::linear(x[token], t[2][expert]);
      const at::Tensor inner = at::silu(both.narrow(0, 0, kFfn)).mul(both.narrow(0, kFfn, kFfn));
      sum = sum.add(at::linear(inner, t[3][expert]).mul(t[1][token][rank]));
    }
    rows.push_back(sum);
  }
  return at::stack(rows).view(t[0].sizes());
}

}  // namespace

TEST(Experts, AreTheSumOfWhatEachTokensExpertsGive) {
  for (const GroupedBy by : {GroupedBy::loop, GroupedBy::library}) {
    const Tensors got = results_and_grads(inputs_of(), [&](const Tensors& t) -> Tensors { return {through(t, by)}; });
    const Tensors wanted = results_and_grads(inputs_of(), [](const Tensors& t) -> Tensors { return {plainly(t)}; });
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_LT(got[i].sub(wanted[i]).abs().max().item<double>(), 2e-6 * wanted[i].abs().max().item<double>()) << i;
    }
  }
}

// What a GPU computes in bf16, by the library's own CPU version.
TEST(Experts, HaveTheSameValuesHoweverTheyAreMultiplied) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    expect_same(
        inputs_of(dtype), [](const Tensors& t) -> Tensors { return {through(t, GroupedBy::loop)}; },
        [](const Tensors& t) -> Tensors { return {through(t, GroupedBy::library)}; });
  }
}

TEST(Experts, WithoutTokensGetAGradientOfZero) {
  for (const GroupedBy by : {GroupedBy::loop, GroupedBy::library}) {
    const Tensors got = results_and_grads(inputs_of(), [&](const Tensors& t) -> Tensors { return {through(t, by)}; });
    for (const size_t weight : {size_t{3}, size_t{4}}) {  // behind the result and two gradients
      EXPECT_TRUE(got[weight].select(0, 1).eq(0).all().item<bool>());
      for (const int64_t expert : {0, 2, 3, 4}) EXPECT_TRUE(got[weight].select(0, expert).ne(0).any().item<bool>());
    }
  }
}

TEST(Experts, OfARemadeInputHaveTheBitsOfAKeptOne) {
  const at::Tensor weight = normal_tensor({kHidden}, 6);
  const auto normed = [&](bool remade) {
    return [&weight, remade](const Tensors& t) -> Tensors {
      Operand x = rms_norm(t[0], weight, 1e-5);
      if (remade) x.origin = {Origin::Op::rms_norm, {t[0], weight}, 1e-5};
      return {experts(x, make_routes(chosen(), t[1], kExperts), {t[2], t[3]})};
    };
  };
  expect_same(inputs_of(), normed(false), normed(true));
}

TEST(Routes, CountTheTokensOfEachExpertAndKeepTheirOrder) {
  const at::Tensor picks = at::tensor({3, 0, 3, 1, 0, 3}, at::kLong).view({3, 2});
  const Routes routes = make_routes(picks, at::ones({3, 2}), 5);
  EXPECT_TRUE(routes.counts().equal(at::tensor({2, 1, 0, 3, 0}, at::kLong)));
  EXPECT_TRUE(routes.pairs.equal(at::tensor({1, 4, 3, 0, 2, 5}, at::kLong)));
  EXPECT_TRUE(routes.tokens().equal(at::tensor({0, 2, 1, 0, 1, 2}, at::kLong)));
  EXPECT_TRUE(routes.pairs.index_select(0, routes.places).equal(at::arange(6)));
}

}  // namespace shoal::models::ops
