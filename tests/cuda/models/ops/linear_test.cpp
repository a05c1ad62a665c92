#include "models/ops/linear.h"

#include "cuda/tensors.h"
#include "engine/graph_hooks.h"
#include "models/ops/cuda/fp8.h"
#include "models/ops/swiglu_linear.h"

namespace shoal {

using models::ops::linear;
using models::ops::linears;
using models::ops::Matmul;
using models::ops::Product;
using models::ops::swiglu_linear;

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
  std::vector<Matmul> ways = {Matmul::plain};
  if (models::ops::cuda::multiplies_fp8()) ways.insert(ways.end(), {Matmul::fp8_tensorwise, Matmul::fp8_rowwise});
  for (const Matmul how : ways) {
    for (const bool swiglu : {false, true}) {
      at::Tensor x = on_gpu({64, 128}, at::kBFloat16).set_requires_grad(true);
      const at::Tensor dy = on_gpu({64, 256}, at::kBFloat16);
      at::Tensor weight = on_gpu({256, 128}, at::kBFloat16, 0.1).set_requires_grad(true);
      const auto back = [&] {
        const at::Tensor y = swiglu ? swiglu_linear(how, x, x, weight, Product::kept) : linear(how, x, weight);
        torch::autograd::backward({y}, {dy});
      };
      back();
      const at::Tensor elsewhere = weight.grad().clone();
      const at::Tensor target = at::empty_like(elsewhere).fill_(7);
      at::Tensor taken;
      const GradientHook hook(
          weight, [&](const at::Tensor& grad) { taken = grad; }, [&] { return target; });
      back();
      EXPECT_EQ(taken.const_data_ptr(), target.const_data_ptr()) << static_cast<int>(how) << swiglu;
      EXPECT_TRUE(target.equal(elsewhere)) << static_cast<int>(how) << swiglu;
    }
  }
}

}  // namespace shoal
