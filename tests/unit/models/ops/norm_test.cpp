#include "models/ops/norm.h"

#include <ATen/ops/full.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rms_norm.h>

#include "unit/models/ops/same.h"

namespace shoal::models::ops {

using testing::expect_same;
using testing::normal_tensor;
using testing::Tensors;

TEST(RmsNorm, OnTheCpuIsTheLibrarys) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    expect_same(
        {normal_tensor({2, 3, 8}, 1, dtype), normal_tensor({8}, 2, dtype)},
        [](const Tensors& t) -> Tensors { return {rms_norm(t[0], t[1], 1e-5)}; },
        [](const Tensors& t) -> Tensors { return {at::rms_norm(t[0], {8}, t[1], 1e-5)}; });
  }
}

TEST(AddRmsNorm, GivesTheSumToo) {
  expect_same(
      {normal_tensor({2, 3, 8}, 1), normal_tensor({2, 3, 8}, 2), normal_tensor({8}, 3)},
      [](const Tensors& t) -> Tensors {
        const AddedNorm both = add_rms_norm(t[0], t[1], t[2], 1e-5);
        return {both.sum, both.norm};
      },
      [](const Tensors& t) -> Tensors {
        const at::Tensor sum = t[0].add(t[1]);
        return {sum, at::rms_norm(sum, {8}, t[2], 1e-5)};
      });
}

TEST(ForkRmsNorm, GivesXBesideTheNorm) {
  expect_same(
      {normal_tensor({2, 3, 8}, 1), normal_tensor({8}, 3)},
      [](const Tensors& t) -> Tensors {
        const ForkedNorm both = fork_rms_norm(t[0], t[1], 1e-5);
        return {both.x.mul(2), both.norm};
      },
      [](const Tensors& t) -> Tensors {
        const at::Tensor norm = at::rms_norm(t[0], {8}, t[1], 1e-5);  // before: gradients add up the same way round
        return {t[0].mul(2), norm};
      });
}

TEST(RmsNormOne, AddsOneAndNormsInFp32) {
  expect_same(
      {normal_tensor({2, 3, 8}, 1), normal_tensor({8}, 2)},
      [](const Tensors& t) -> Tensors { return {rms_norm_one(t[0], t[1], 1e-5)}; },
      [](const Tensors& t) -> Tensors { return {at::rms_norm(t[0], {8}, t[1].add(1), 1e-5)}; });
  // In bf16 a weight of 1 / 512 would be lost beside 1.
  const at::Tensor x = normal_tensor({64, 8}, 1, at::kBFloat16);
  const at::Tensor weight = at::full({8}, 1.0 / 512, at::kBFloat16);
  EXPECT_EQ(rms_norm_one(x, weight, 1e-5).scalar_type(), at::kBFloat16);
  EXPECT_FALSE(rms_norm_one(x, weight, 1e-5).equal(rms_norm(x, at::ones({8}, at::kBFloat16), 1e-5)));
}

TEST(LayerNorm, OnTheCpuIsTheLibrarys) {
  expect_same(
      {normal_tensor({2, 3, 8}, 1), normal_tensor({8}, 2), normal_tensor({8}, 3)},
      [](const Tensors& t) -> Tensors { return {layer_norm(t[0], t[1], t[2], 1e-5)}; },
      [](const Tensors& t) -> Tensors { return {at::layer_norm(t[0], {8}, t[1], t[2], 1e-5)}; });
}

TEST(AddLayerNorm, GivesTheSumToo) {
  expect_same(
      {normal_tensor({2, 3, 8}, 1), normal_tensor({2, 3, 8}, 2), normal_tensor({8}, 3), normal_tensor({8}, 4)},
      [](const Tensors& t) -> Tensors {
        const AddedNorm both = add_layer_norm(t[0], t[1], t[2], t[3], 1e-5);
        return {both.sum, both.norm};
      },
      [](const Tensors& t) -> Tensors {
        const at::Tensor sum = t[0].add(t[1]);
        return {sum, at::layer_norm(sum, {8}, t[2], t[3], 1e-5)};
      });
}

}  // namespace shoal::models::ops
