#include "models/ops/linear_cross_entropy.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>

#include "unit/models/ops/same.h"

namespace shoal::models::ops {

using testing::expect_same;
using testing::normal_tensor;
using testing::Tensors;

TEST(LinearCrossEntropy, OnTheCpuIsTheLibrarysOverFp32Logits) {
  const at::Tensor targets = at::arange(6).reshape({2, 3});
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    expect_same(
        {normal_tensor({2, 3, 5}, 1, dtype), normal_tensor({7, 5}, 2, dtype)},
        [&](const Tensors& t) -> Tensors { return {linear_cross_entropy(t[0], t[1], targets)}; },
        [&](const Tensors& t) -> Tensors {
          const at::Tensor logits = at::linear(t[0], t[1]).to(at::kFloat);
          return {at::cross_entropy_loss(logits.flatten(0, 1), targets.flatten())};
        });
  }
}

TEST(LinearCrossEntropy, IsTheMeanOfTheTokensLosses) {
  const at::Tensor x = normal_tensor({2, 3, 5}, 1);
  const at::Tensor weight = normal_tensor({7, 5}, 2);
  const at::Tensor targets = at::arange(6).reshape({2, 3});
  const at::Tensor wanted = -at::linear(x, weight).log_softmax(-1).gather(-1, targets.unsqueeze(-1)).mean();
  EXPECT_NEAR(linear_cross_entropy(x, weight, targets).item<double>(), wanted.item<double>(), 1e-6);
  EXPECT_EQ(linear_cross_entropy(x.to(at::kBFloat16), weight.to(at::kBFloat16), targets).scalar_type(), at::kFloat);
}

TEST(LinearCrossEntropy, CapsLogits) {
  const at::Tensor targets = at::arange(6).reshape({2, 3});
  expect_same(
      {normal_tensor({2, 3, 5}, 1), normal_tensor({7, 5}, 2)},
      [&](const Tensors& t) -> Tensors { return {linear_cross_entropy(t[0], t[1], targets, 1.5)}; },
      [&](const Tensors& t) -> Tensors {
        const at::Tensor logits = at::linear(t[0], t[1]).div(1.5).tanh().mul(1.5);
        return {at::cross_entropy_loss(logits.flatten(0, 1), targets.flatten())};
      });
  EXPECT_LE(cap_logits(normal_tensor({100}, 1).mul(100), 1.5).abs().max().item<double>(), 1.5);
}

TEST(TokensAChunk, AreAllWhereTheyAreFew) {
  EXPECT_EQ(tokens_a_chunk(1, 32000, 2048, DType::bf16), 1);
  EXPECT_EQ(tokens_a_chunk(1000, 32000, 2048, DType::bf16), 1000);
}

TEST(TokensAChunk, AreWholeTilesThatCoverAllTokensEvenly) {
  for (const int64_t vocab : {29, 32000, 50257, 128256}) {
    for (const int64_t tokens : {100, 4096, 16384, 16385, 100000}) {
      const int64_t chunk = tokens_a_chunk(tokens, vocab, 4096, DType::bf16);
      EXPECT_TRUE(chunk == tokens || chunk % 128 == 0) << chunk;
      EXPECT_LE(chunk * vocab * 2, (int64_t{256} << 20) + vocab * 4096 * 2 + vocab * 256) << vocab << " " << tokens;
      const int64_t chunks = (tokens + chunk - 1) / chunk;
      EXPECT_LT(chunks * chunk - tokens, chunk) << vocab << " " << tokens;
    }
  }
  EXPECT_EQ(tokens_a_chunk(16384, 128256, 4096, DType::bf16), 4096);
  EXPECT_EQ(tokens_a_chunk(16384, 32000, 2048, DType::bf16), 4096);
}

TEST(LinearCrossEntropyNbytes, IsFarBelowTheLogitsInFp32) {
  const size_t whole = size_t{16384} * 128256 * 4;
  EXPECT_LT(linear_cross_entropy_nbytes(16384, 128256, 4096, DType::bf16), whole / 2);
}

}  // namespace shoal::models::ops
