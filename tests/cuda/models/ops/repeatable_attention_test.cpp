#include "models/ops/repeatable_attention.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>

#include <cmath>
#include <limits>

#include "cuda/tensors.h"
#include "device/cuda.h"
#include "models/layers.h"
#include "models/ops/attention_pieces.h"
#include "models/ops/cudnn_backward.h"

namespace shoal {

using models::causal_attention;
using models::ops::repeatable_attention;
using models::ops::wants_repeatable_attention;

namespace {

class RepeatableAttention : public OnGpuTensors {
 protected:
  void SetUp() override {
    OnGpuTensors::SetUp();
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    at::globalContext().setSDPUseCuDNN(true);
  }
};

struct Shape {
  int64_t batch, heads, kv_heads, time, dim;
};

// As projections leave them: heads of a token side by side.
at::Tensor heads_of(const Shape& s, int64_t heads, at::ScalarType dtype) {
  return on_gpu({s.batch, s.time, heads, s.dim}, dtype).transpose(1, 2);
}

Tensors inputs_of(const Shape& s, at::ScalarType dtype) {
  return {heads_of(s, s.heads, dtype), heads_of(s, s.kv_heads, dtype), heads_of(s, s.kv_heads, dtype)};
}

at::Tensor by_hand(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale) {
  const int64_t group = q.size(1) / k.size(1), time = q.size(2);
  const auto repeated = [&](const at::Tensor& x) { return x.repeat_interleave(group, 1); };
  const at::Tensor later = at::ones({time, time}, q.options().dtype(at::kBool)).triu(1);
  const at::Tensor scores = q.matmul(repeated(k).transpose(2, 3)).mul(scale);
  return scores.masked_fill(later, -std::numeric_limits<double>::infinity()).softmax(-1).matmul(repeated(v));
}

// Whether cuDNN's backward takes it: what it gives for a gradient of ones like q.
bool is_taken_by_cudnn(const Shape& s, at::ScalarType dtype) {
  const Tensors t = inputs_of(s, dtype);
  const auto made =
      at::_scaled_dot_product_cudnn_attention(t[0], t[1], t[2], /*attn_bias=*/{}, true, 0.0, true, false, 0.1);
  const at::Tensor sums = std::get<1>(made).view({s.batch, s.heads, s.time});
  return models::ops::cudnn_backward({heads_of(s, s.heads, dtype), t[0], t[1], t[2], std::get<0>(made), sums, 0.1})
      .has_value();
}

models::ops::AttentionPiece piece_of(const Shape& s) {
  return models::ops::piece_of({s.batch, s.heads, s.kv_heads, s.time, s.dim});
}

// Whole, rows of a batch apart with fewer in the last piece, heads of one row apart likewise.
const std::vector<Shape> kCudnnShapes = {{2, 4, 2, 512, 64},  {1, 6, 3, 640, 128},   {3, 2, 1, 1024, 96},
                                         {2, 2, 2, 512, 40},  {5, 16, 16, 2048, 64}, {1, 12, 3, 4096, 64},
                                         {2, 4, 4, 1152, 128}};
const std::vector<Shape> kShapes = {{2, 4, 4, 64, 64},   {1, 8, 2, 513, 64}, {3, 6, 3, 100, 128},
                                    {1, 2, 1, 1000, 96}, {2, 3, 1, 2, 40},   {1, 1, 1, 17, 8}};

}  // namespace

TEST_F(RepeatableAttention, IsNearFp64AndTheSameInASecondRun) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    std::vector<Shape> shapes = kShapes;
    shapes.insert(shapes.end(), kCudnnShapes.begin(), kCudnnShapes.end());
    for (const Shape& s : shapes) {
      const double scale = 1.1 / std::sqrt(static_cast<double>(s.dim));
      const Tensors inputs = inputs_of(s, dtype);
      ASSERT_TRUE(wants_repeatable_attention(inputs[0], inputs[1], inputs[2]));
      expect_near_reference(
          inputs, [&](const Tensors& t) -> Tensors { return {repeatable_attention(t[0], t[1], t[2], scale)}; },
          [&](const Tensors& t) -> Tensors { return {by_hand(t[0], t[1], t[2], scale)}; }, 3 * tolerance_of(dtype),
          words_of("attention", dtype, {s.batch, s.heads, s.kv_heads, s.time, s.dim}));
    }
  }
}

// Many blocks of keys for one row of queries: what an order of atomic additions would show in.
TEST_F(RepeatableAttention, GivesTheSameBitsInEveryRun) {
  // By cuDNN; by FlashAttention, whose length has no tiles; by cuDNN in pieces of a row.
  for (const Shape& s : {Shape{4, 16, 4, 2048, 64}, Shape{4, 16, 4, 2000, 64}, Shape{2, 32, 8, 4096, 128}}) {
    const Tensors inputs = inputs_of(s, at::kBFloat16);
    const auto run = [&] {
      return run_with_grads(
          inputs, [](const Tensors& t) -> Tensors { return {repeatable_attention(t[0], t[1], t[2], 0.125)}; },
          at::kBFloat16);
    };
    const Tensors first = run();
    for (int round = 0; round < 30; ++round) {
      const Tensors again = run();
      for (size_t i = 0; i < first.size(); ++i) {
        ASSERT_TRUE(again[i].equal(first[i])) << "time " << s.time << ", tensor " << i << ", " << round;
      }
    }
  }
}

TEST_F(RepeatableAttention, TakesCudnnsBackwardWhereItsShapesFit) {
  if (!models::ops::has_cudnn_backward()) GTEST_SKIP() << "built without cuDNN's frontend";
  if (cuda::facts_of(0).major != 9) GTEST_SKIP() << "for Hopper alone";
  EXPECT_LT(piece_of({5, 16, 16, 2048, 64}).batch, 5);
  EXPECT_LT(piece_of({1, 12, 3, 4096, 64}).kv_heads, 3);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    for (const Shape& s : kCudnnShapes) EXPECT_TRUE(is_taken_by_cudnn(s, dtype)) << s.time << " x " << s.dim;
    for (const Shape& s : kShapes) EXPECT_FALSE(is_taken_by_cudnn(s, dtype)) << s.time << " x " << s.dim;
  }
}

// A forward without gradients, as recompute and evaluation run it, has the bits of the one with them.
TEST_F(RepeatableAttention, IsWhatModelsUseInDeterministicMode) {
  const Shape s = {2, 8, 4, 300, 64};
  const Tensors inputs = inputs_of(s, at::kBFloat16);
  const at::Tensor wanted = repeatable_attention(inputs[0], inputs[1], inputs[2], 1 / std::sqrt(64.0));
  const auto by_model = [&] {
    return causal_attention(inputs[0], inputs[1], inputs[2], 0, {}).unflatten(-1, {s.heads, s.dim}).transpose(1, 2);
  };
  EXPECT_TRUE(by_model().equal(wanted));
  {
    at::NoGradGuard without_graph;
    EXPECT_TRUE(by_model().equal(wanted));
  }
}

TEST_F(RepeatableAttention, IsForDeterministicModeAndWhatBothLibrariesTake) {
  const Tensors fit = inputs_of({1, 2, 2, 32, 64}, at::kBFloat16);
  EXPECT_TRUE(wants_repeatable_attention(fit[0], fit[1], fit[2]));
  for (const Tensors& other : {inputs_of({1, 2, 2, 32, 64}, at::kFloat), inputs_of({1, 2, 2, 32, 20}, at::kBFloat16),
                               inputs_of({1, 2, 2, 32, 256}, at::kBFloat16), inputs_of({1, 2, 2, 1, 64}, at::kHalf)}) {
    EXPECT_FALSE(wants_repeatable_attention(other[0], other[1], other[2]));
  }
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);  // FlashAttention's backward only warns
  EXPECT_FALSE(wants_repeatable_attention(fit[0], fit[1], fit[2]));
  at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
  EXPECT_FALSE(wants_repeatable_attention(fit[0], fit[1], fit[2]));
}

}  // namespace shoal
