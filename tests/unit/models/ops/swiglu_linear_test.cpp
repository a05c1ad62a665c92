#include "models/ops/swiglu_linear.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/silu.h>

#include "unit/models/ops/same.h"

namespace shoal::models::ops {

using testing::expect_same;
using testing::normal_tensor;
using testing::Tensors;

TEST(SwigluLinear, OnTheCpuIsTheLibrarys) {
  expect_same(
      {normal_tensor({2, 3, 6}, 1), normal_tensor({2, 3, 6}, 2), normal_tensor({4, 6}, 3)},
      [](const Tensors& t) -> Tensors { return {swiglu_linear(Matmul::plain, t[0], t[1], t[2])}; },
      [](const Tensors& t) -> Tensors { return {at::linear(at::silu(t[0]).mul(t[1]), t[2])}; });
}

TEST(SwigluLinear, OfARemadeProductHasTheBitsOfAKeptOne) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto with = [](Product product) {
      return
          [product](const Tensors& t) -> Tensors { return {swiglu_linear(Matmul::plain, t[0], t[1], t[2], product)}; };
    };
    expect_same(
        {normal_tensor({2, 33, 64}, 1, dtype), normal_tensor({2, 33, 64}, 2, dtype), normal_tensor({48, 64}, 3, dtype)},
        with(Product::remade), with(Product::kept));
  }
}

}  // namespace shoal::models::ops
