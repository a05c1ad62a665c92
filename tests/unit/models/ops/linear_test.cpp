#include "models/ops/linear.h"

#include <ATen/ops/linear.h>
#include <gmock/gmock.h>

#include "models/ops/activation.h"
#include "models/ops/norm.h"
#include "training/outcome.h"
#include "unit/models/ops/same.h"

namespace shoal::models::ops {

using testing::expect_same;
using testing::message_of;
using testing::normal_tensor;
using testing::Tensors;

TEST(Linear, PlainIsTheLibrarys) {
  expect_same(
      {normal_tensor({2, 3, 5}, 1), normal_tensor({7, 5}, 2), normal_tensor({7}, 3)},
      [](const Tensors& t) -> Tensors { return {linear(Matmul::plain, t[0], t[1], t[2])}; },
      [](const Tensors& t) -> Tensors { return {at::linear(t[0], t[1], t[2])}; });
}

TEST(Linears, AreOneLinearEachInOrder) {
  expect_same(
      {normal_tensor({2, 3, 5}, 1), normal_tensor({7, 5}, 2), normal_tensor({4, 5}, 3), normal_tensor({4}, 4)},
      [](const Tensors& t) -> Tensors {
        return linears(Matmul::plain, t[0], {t[1], t[2]}, {{}, t[3]});
      },
      [](const Tensors& t) -> Tensors {
        return {at::linear(t[0], t[1]), at::linear(t[0], t[2], t[3])};
      });
}

namespace {

Operand normed(const at::Tensor& x, const at::Tensor& weight, bool remade) {
  Operand operand = rms_norm(x, weight, 1e-5);
  if (remade) operand.origin = {Origin::Op::rms_norm, {x, weight}, 1e-5};
  return operand;
}

Operand activated(const at::Tensor& x, bool remade) {
  Operand operand = gelu(x, false);
  if (remade) operand.origin = {Origin::Op::gelu_tanh, {x}};
  return operand;
}

}  // namespace

TEST(Linears, OfARemadeInputHaveTheBitsOfAKeptOne) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    // Sizes at which the order of a sum shows; a matrix that lies transposed, as GPT-2's do; biases or none.
    const Tensors inputs = {normal_tensor({2, 37, 64}, 1, dtype), normal_tensor({64}, 2, dtype),
                            normal_tensor({96, 64}, 3, dtype),    normal_tensor({40, 64}, 4, dtype),
                            normal_tensor({64, 72}, 5, dtype),    normal_tensor({40}, 6, dtype)};
    const auto norms = [](bool remade) {
      return [remade](const Tensors& t) -> Tensors {
        return linears(Matmul::plain, normed(t[0], t[1], remade), {t[2], t[3], t[4].t()}, {{}, t[5], {}});
      };
    };
    expect_same(inputs, norms(true), norms(false));
    const auto gelus = [](bool remade) {
      return [remade](const Tensors& t) -> Tensors {
        return {linear(Matmul::plain, activated(t[0], remade), t[1].t(), t[2])};
      };
    };
    expect_same({inputs[0], inputs[4], normal_tensor({72}, 7, dtype)}, gelus(true), gelus(false));
  }
}

TEST(Linears, OfARemadeInputAreOneNodeThatDoesNotKeepIt) {
  const at::Tensor x = normal_tensor({8, 16}, 1).set_requires_grad(true);
  const at::Tensor scale = normal_tensor({16}, 2), weight = normal_tensor({4, 16}, 3).set_requires_grad(true);
  for (const bool remade : {false, true}) {
    Operand operand = normed(x, scale, remade);
    const c10::weak_intrusive_ptr<c10::StorageImpl> memory(operand.value.storage().getWeakStorageImpl());
    const std::vector<at::Tensor> outputs = linears(Matmul::plain, operand, {weight, weight, weight});
    operand = Operand(at::Tensor());
    EXPECT_EQ(memory.use_count() == 0, remade);
    EXPECT_EQ(outputs[0].grad_fn() == outputs[2].grad_fn(), remade);
  }
}

TEST(Linears, OfARemadeInputGiveAFrozenMatrixNoGradient) {
  const at::Tensor x = normal_tensor({8, 16}, 1).set_requires_grad(true);
  const at::Tensor trained = normal_tensor({4, 16}, 2).set_requires_grad(true), frozen = normal_tensor({4, 16}, 3);
  const std::vector<at::Tensor> out =
      linears(Matmul::plain, normed(x, normal_tensor({16}, 4), true), {frozen, trained});
  torch::autograd::backward({out[0].sum(), out[1].sum()});
  EXPECT_TRUE(x.grad().defined() && trained.grad().defined());
  EXPECT_FALSE(frozen.grad().defined());
}

TEST(Linear, Fp8IsRefusedOnTheCpu) {
  for (const Matmul how : {Matmul::fp8_tensorwise, Matmul::fp8_rowwise}) {
    EXPECT_THAT(message_of([&] {
                  linear(how, normal_tensor({16, 16}, 1), normal_tensor({16, 16}, 2));
                }),
                ::testing::AllOf(::testing::HasSubstr("[config fp8.enabled] true, and the model is on the cpu"),
                                 ::testing::HasSubstr("8.9")));
  }
}

}  // namespace shoal::models::ops
