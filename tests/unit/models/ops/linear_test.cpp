#include "models/ops/linear.h"

#include <gmock/gmock.h>

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
