#include "models/ops/linear.h"

#include "cuda/tensors.h"
#include "engine/graph_hooks.h"

namespace shoal {

using models::ops::linears;
using models::ops::Matmul;

namespace {

using SharedLinears = OnGpuTensors;

}  // namespace

TEST_F(SharedLinears, AreNearFp64AndTheirGradientsAddUp) {
  for (const at::ScalarType dtype : kDtypes) {
    expect_near_reference(
        {on_gpu({2, 33, 64}, dtype), on_gpu({40, 64}, dtype, 0.1), on_gpu({7, 64}, dtype, 0.1),
         on_gpu({128, 64}, dtype, 0.1)},
        [](const Tensors& t) -> Tensors {
          return linears(Matmul::plain, t[0], {t[1], t[2], t[3]});
        },
        [](const Tensors& t) -> Tensors {
          return {at::linear(t[0], t[1]), at::linear(t[0], t[2]), at::linear(t[0], t[3])};
        },
        2 * tolerance_of(dtype), words_of("linears", dtype, {2, 33, 64}));
  }
}

TEST_F(SharedLinears, AFrozenMatrixGetsNoGradient) {
  at::Tensor x = on_gpu({8, 16}, at::kFloat).set_requires_grad(true);
  at::Tensor trained = on_gpu({8, 16}, at::kFloat).set_requires_grad(true);
  const at::Tensor frozen = on_gpu({8, 16}, at::kFloat);
  const Tensors out = linears(Matmul::plain, x, {trained, frozen});
  torch::autograd::backward({out[0].sum(), out[1].sum()});
  EXPECT_TRUE(x.grad().defined() && trained.grad().defined());
  EXPECT_FALSE(frozen.grad().defined());
}

// See [Note: gradients made where they are kept] in engine/graph_hooks.h.
TEST_F(SharedLinears, GradientsAreMadeWhereTheEngineKeepsThem) {
  for (const at::ScalarType dtype : kDtypes) {
    at::Tensor x = on_gpu({64, 128}, dtype).set_requires_grad(true);
    const at::Tensor dy = on_gpu({64, 256}, dtype);
    at::Tensor weight = on_gpu({256, 128}, dtype, 0.1).set_requires_grad(true);
    const auto back = [&] { torch::autograd::backward({linears(Matmul::plain, x, {weight})[0]}, {dy}); };
    back();
    const at::Tensor elsewhere = weight.grad().clone();
    const at::Tensor room = at::empty_like(elsewhere).fill_(7);
    at::Tensor taken;
    const GradientHook hook(weight, [&](const at::Tensor& grad) { taken = grad; }, [&] { return room; });
    back();
    EXPECT_EQ(taken.const_data_ptr(), room.const_data_ptr());
    EXPECT_TRUE(room.equal(elsewhere)) << c10::toString(dtype);
  }
}

}  // namespace shoal
