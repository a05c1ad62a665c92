#include "models/ops/attention.h"

#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <gtest/gtest.h>

#include <limits>

#include "unit/models/ops/grads.h"

namespace shoal::models::ops {

using testing::normal_tensor;
using testing::results_and_grads;
using testing::Tensors;

namespace {

constexpr int64_t kTime = 11;

Tensors inputs(at::ScalarType dtype = at::kFloat) {
  return {normal_tensor({2, 4, kTime, 6}, 1, dtype), normal_tensor({2, 2, kTime, 6}, 2, dtype),
          normal_tensor({2, 2, kTime, 6}, 3, dtype)};
}

// With all scores at once.
at::Tensor plain_attention(const Tensors& t, const Scores& how) {
  const at::Tensor k = t[1].repeat_interleave(2, 1), v = t[2].repeat_interleave(2, 1);
  at::Tensor scores = at::matmul(t[0], k.transpose(2, 3)).mul(how.scale);
  if (how.softcap > 0) scores = scores.div(how.softcap).tanh().mul(how.softcap);
  at::Tensor seen = at::ones({kTime, kTime}, at::kBool).tril();
  if (how.window > 0) seen = seen.logical_and(at::ones({kTime, kTime}, at::kBool).triu(1 - how.window));
  return at::matmul(at::softmax(scores.masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity()), -1),
                    v);
}

}  // namespace

TEST(ChunkedAttention, IsAttentionAtEveryChunkWindowAndCap) {
  for (const int64_t window : {0, 1, 4, 11, 50}) {
    for (const double softcap : {0.0, 0.7}) {
      const Scores how = {.scale = 0.9, .softcap = softcap, .window = window};
      const Tensors wanted =
          results_and_grads(inputs(), [&](const Tensors& t) -> Tensors { return {plain_attention(t, how)}; });
      for (const int64_t chunk : {1, 3, 11, 64, 0}) {
        Scores chunked = how;
        chunked.chunk = chunk;
        const Tensors got = results_and_grads(
            inputs(), [&](const Tensors& t) -> Tensors { return {chunked_attention(t[0], t[1], t[2], chunked)}; });
        ASSERT_EQ(got.size(), wanted.size());
        for (size_t i = 0; i < got.size(); ++i) {
          EXPECT_LT(got[i].sub(wanted[i]).abs().max().item<double>(), 3e-6)
              << "window " << window << " cap " << softcap << " chunk " << chunk << " result " << i;
        }
      }
    }
  }
}

TEST(ChunkedAttention, ReadsHeadsAsTheyComeFromTheirProjection) {
  const Tensors together = {normal_tensor({2, kTime, 4, 6}, 1).transpose(1, 2), inputs()[1], inputs()[2]};
  const Tensors apart = {together[0].contiguous(), together[1], together[2]};
  const Scores how = {.window = 3, .chunk = 4};
  EXPECT_TRUE(chunked_attention(together[0], together[1], together[2], how)
                  .equal(chunked_attention(apart[0], apart[1], apart[2], how)));
}

TEST(ChunkedAttention, GradientsHaveTheDtypeOfTheirInputs) {
  const Tensors all = results_and_grads(inputs(at::kBFloat16), [](const Tensors& t) -> Tensors {
    return {chunked_attention(t[0], t[1], t[2], {.softcap = 2, .window = 3, .chunk = 4})};
  });
  for (const at::Tensor& tensor : all) {
    EXPECT_EQ(tensor.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(tensor.isfinite().all().item<bool>());
  }
}

// q.k of some hundred thousand, more than fp16 holds; scores of some ten, which bf16 would move by a tenth.
TEST(ChunkedAttention, LargeScoresAreThoseOfFp32) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const double scale = 1e-4;
    Tensors given = inputs();
    given[0].mul_(400);
    given[1].mul_(400);
    for (at::Tensor& tensor : given) tensor = tensor.to(dtype);
    Tensors wide = given;
    for (at::Tensor& tensor : wide) tensor = tensor.to(at::kFloat);
    ASSERT_GT(at::matmul(wide[0].narrow(1, 0, 2), wide[1].transpose(2, 3)).abs().max().item<double>(), 65504);
    for (const double softcap : {0.0, 30.0}) {
      const Scores how = {.scale = scale, .softcap = softcap, .window = 6, .chunk = 4};
      const Tensors wanted =
          results_and_grads(wide, [&](const Tensors& t) -> Tensors { return {plain_attention(t, how)}; });
      const Tensors got = results_and_grads(
          given, [&](const Tensors& t) -> Tensors { return {chunked_attention(t[0], t[1], t[2], how)}; });
      for (size_t i = 0; i < got.size(); ++i) {
        const double error = got[i].to(at::kFloat).sub(wanted[i]).norm().div(wanted[i].norm()).item<double>();
        // What goes on is rounded, and so are the products' inputs on the way back.
        const double bound = i > 0 ? 3e-2 : dtype == at::kHalf ? 1e-3 : 4e-3;
        EXPECT_LT(error, bound) << dtype << " cap " << softcap << " result " << i;
      }
    }
  }
}

TEST(AttentionChunk, TakesLessRoomThanAllScores) {
  EXPECT_EQ(attention_chunk(1, 8, 512, 0), 512);
  const int64_t chunk = attention_chunk(4, 16, 8192, 0);
  EXPECT_LT(chunk, 8192);
  EXPECT_GE(chunk, 128);
  EXPECT_GT(attention_chunk(4, 16, 8192, 256), chunk);
  EXPECT_EQ(attention_reach(128, 8192, 256), 383);
  EXPECT_EQ(attention_reach(128, 200, 256), 200);
}

}  // namespace shoal::models::ops
