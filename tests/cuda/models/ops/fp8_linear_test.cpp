#include "cuda/tensors.h"
#include "models/ops/cuda/fp8.h"
#include "models/ops/linear.h"
#include "shoal/error.h"

namespace shoal {

using models::ops::linear;
using models::ops::linears;
using models::ops::Matmul;

namespace {

class Fp8Linear : public OnGpuTensors {
 protected:
  void SetUp() override {
    OnGpuTensors::SetUp();
    if (!IsSkipped() && !models::ops::cuda::multiplies_fp8()) GTEST_SKIP() << "this GPU does not multiply fp8";
  }
};

constexpr Matmul kRecipes[] = {Matmul::fp8_tensorwise, Matmul::fp8_rowwise};

}  // namespace

// e4m3 has 3 bits behind the point: about 2.6 % a value, of which a product of two keeps 3.7 %; e5m2 twice that.
TEST_F(Fp8Linear, IsAsNearFp64AsEightBitsAllow) {
  struct Shape {
    int64_t tokens, in, out;
  };
  for (const Matmul how : kRecipes) {
    for (const Shape& s : {Shape{16, 16, 16}, Shape{33, 64, 128}, Shape{250, 256, 48}, Shape{1024, 512, 1024}}) {
      expect_near_reference(
          {on_gpu({s.tokens, s.in}, at::kBFloat16), on_gpu({s.out, s.in}, at::kBFloat16, 0.02)},
          [&](const Tensors& t) -> Tensors { return {linear(how, t[0], t[1])}; },
          [](const Tensors& t) -> Tensors { return {at::linear(t[0], t[1])}; }, 0.09,
          words_of("fp8 linear", at::kBFloat16, {static_cast<int64_t>(how), s.tokens, s.in, s.out}));
    }
  }
}

TEST_F(Fp8Linear, SeveralOnOneInputAreTheSameAsOneEach) {
  for (const Matmul how : kRecipes) {
    const Tensors inputs = {on_gpu({2, 48, 64}, at::kBFloat16), on_gpu({32, 64}, at::kBFloat16, 0.1),
                            on_gpu({96, 64}, at::kBFloat16, 0.1), on_gpu({96}, at::kBFloat16)};
    const Tensors together = run_with_grads(
        inputs,
        [&](const Tensors& t) -> Tensors {
          return linears(how, t[0], {t[1], t[2]}, {{}, t[3]});
        },
        at::kBFloat16);
    const Tensors apart = run_with_grads(
        inputs,
        [&](const Tensors& t) -> Tensors {
          return {linear(how, t[0], t[1]), linear(how, t[0], t[2], t[3])};
        },
        at::kBFloat16);
    ASSERT_EQ(together.size(), apart.size());
    for (size_t i = 0; i < together.size(); ++i) EXPECT_LT(relative_error(together[i], apart[i]), 4e-3) << i;
  }
}

TEST_F(Fp8Linear, ATransposedWeightIsTakenAsItIsMeant) {
  for (const Matmul how : kRecipes) {
    expect_near_reference(
        {on_gpu({64, 32}, at::kBFloat16), on_gpu({32, 48}, at::kBFloat16, 0.1)},
        [&](const Tensors& t) -> Tensors { return {linear(how, t[0], t[1].t())}; },
        [](const Tensors& t) -> Tensors { return {at::linear(t[0], t[1].t())}; }, 0.09, "transposed");
  }
}

TEST_F(Fp8Linear, SizesThatFp8CannotMultiplyAreRefused) {
  EXPECT_THROW(linear(Matmul::fp8_tensorwise, on_gpu({16, 24}, at::kBFloat16), on_gpu({16, 24}, at::kBFloat16)), Error);
}

}  // namespace shoal
