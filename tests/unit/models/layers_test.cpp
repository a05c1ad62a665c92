#include "models/layers.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "training/outcome.h"

namespace shoal::models {

using testing::bytes_of;

namespace {

Randomness training(uint64_t seed) { return {true, at::detail::createCPUGenerator(seed)}; }

at::Tensor normal(at::IntArrayRef sizes, uint64_t seed) {
  return at::empty(sizes).normal_(0, 1, at::detail::createCPUGenerator(seed)).set_requires_grad(true);
}

// Attention and the gradients of its inputs, as one list.
std::vector<at::Tensor> attention_and_grads(int64_t kv_heads, int64_t expand, double p, const Randomness& randomness) {
  const at::Tensor q = normal({2, 4, 5, 8}, 1);
  const at::Tensor k = normal({2, kv_heads, 5, 8}, 2);
  const at::Tensor v = normal({2, kv_heads, 5, 8}, 3);
  const at::Tensor out =
      causal_attention(q, k.repeat_interleave(expand, 1), v.repeat_interleave(expand, 1), p, randomness);
  torch::autograd::backward({out}, {at::arange(out.numel()).reshape(out.sizes()).to(at::kFloat).sin()});
  return {out.detach(), q.grad(), k.grad(), v.grad()};
}

void expect_close(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_LT(a[i].sub(b[i]).abs().max().item<double>(), 1e-5) << i;
}

}  // namespace

TEST(CausalAttention, AHeadOfKAndVServesItsNeighboursAmongQ) {
  for (const int64_t kv_heads : {1, 2}) {
    expect_close(attention_and_grads(kv_heads, 1, 0, {}), attention_and_grads(kv_heads, 4 / kv_heads, 0, {}));
  }
}

TEST(CausalAttention, TheFormWithDropoutComputesTheSame) {
  // So small a probability that no weight is dropped.
  for (const int64_t kv_heads : {1, 2, 4}) {
    expect_close(attention_and_grads(kv_heads, 1, 1e-12, training(1)), attention_and_grads(kv_heads, 1, 0, {}));
  }
}

TEST(CausalAttention, TheFormWithDropoutHasWindowsScalesAndCaps) {
  const at::Tensor q = normal({2, 4, 5, 8}, 1), k = normal({2, 2, 5, 8}, 2), v = normal({2, 2, 5, 8}, 3);
  for (const Attention& how :
       {Attention{.window = 2}, Attention{.scale = 0.7}, Attention{.softcap = 0.5, .window = 3}}) {
    Attention dropping = how;
    dropping.dropout = 1e-12;  // no weight is dropped
    const at::Tensor plain = causal_attention(q, k, v, how, {});
    expect_close({causal_attention(q, k, v, dropping, training(1))}, {plain});
    EXPECT_GT(plain.sub(causal_attention(q, k, v, 0, {})).abs().max().item<double>(), 1e-3);
  }
  EXPECT_TRUE(causal_attention(q, k, v, Attention{.window = 5}, {}).equal(causal_attention(q, k, v, 0, {})));
}

TEST(CausalAttention, DropoutComesFromTheGivenGeneratorOnly) {
  const auto out = [](uint64_t seed) { return bytes_of(attention_and_grads(2, 1, 0.5, training(seed))[0]); };
  const std::string first = out(1);
  at::manual_seed(99);
  EXPECT_EQ(out(1), first);
  EXPECT_NE(out(2), first);
  Randomness evaluation = training(1);
  evaluation.training = false;
  EXPECT_EQ(bytes_of(attention_and_grads(2, 1, 0.5, evaluation)[0]), bytes_of(attention_and_grads(2, 1, 0, {})[0]));
}

// Rows of three and one documents, against each document alone.
void expect_documents_alone(int64_t kv_heads, const Attention& how) {
  const std::vector<std::vector<int64_t>> rows = {{2, 1, 4}, {7}};
  const auto documents = make_documents(rows, 7, at::kCPU);
  Attention packed = how, dropping = how;
  packed.documents = dropping.documents = documents.get();
  dropping.dropout = 1e-12;  // no weight is dropped
  const at::Tensor weights = at::arange(2 * 7 * 32).reshape({2, 7, 32}).to(at::kFloat).sin();
  const auto outcome = [&](const auto& attend) {
    const at::Tensor q = normal({2, 4, 7, 8}, 1), k = normal({2, kv_heads, 7, 8}, 2),
                     v = normal({2, kv_heads, 7, 8}, 3);
    const at::Tensor out = attend(q, k, v);
    torch::autograd::backward({out}, {weights});
    return std::vector{out.detach(), q.grad(), k.grad(), v.grad()};
  };
  const auto alone = outcome([&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    std::vector<at::Tensor> whole;
    for (int64_t row = 0; row < 2; ++row) {
      std::vector<at::Tensor> parts;
      int64_t begin = 0;
      for (const int64_t length : rows[static_cast<size_t>(row)]) {
        const auto part = [&](const at::Tensor& x) { return x.slice(0, row, row + 1).narrow(2, begin, length); };
        parts.push_back(causal_attention(part(q), part(k), part(v), how, {}));
        begin += length;
      }
      whole.push_back(at::cat(parts, 1));
    }
    return at::cat(whole, 0);
  });
  for (const auto& [as, randomness] : {std::pair(packed, Randomness()), std::pair(dropping, training(1))}) {
    expect_close(
        outcome([&, &as = as, &randomness = randomness](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
          return causal_attention(q, k, v, as, randomness);
        }),
        alone);
  }
}

TEST(CausalAttention, WithinDocumentsIsThatOfEachDocumentAlone) {
  for (const int64_t kv_heads : {1, 2, 4}) {
    for (const Attention& how : {Attention{}, Attention{.window = 2}, Attention{.scale = 0.7, .softcap = 0.5}}) {
      expect_documents_alone(kv_heads, how);
    }
  }
}

TEST(Dropout, DropsTheShareAndScalesTheRest) {
  const at::Tensor x = at::ones({100, 100});
  const at::Tensor y = dropout(x, 0.25, training(3));
  EXPECT_NEAR(y.eq(0).to(at::kFloat).mean().item<double>(), 0.25, 0.03);
  EXPECT_NEAR(y.max().item<double>(), 1 / 0.75, 1e-6);
}

TEST(Dropout, IsNothingWithoutTrainingOrWithoutProbability) {
  const at::Tensor x = at::ones({3});
  EXPECT_TRUE(dropout(x, 0.5, {}).is_same(x));
  EXPECT_TRUE(dropout(x, 0, training(1)).is_same(x));
}

TEST(SplitHeads, NeighbouringDimensionsMakeAHead) {
  const at::Tensor x = at::arange(12).reshape({1, 2, 6});
  const at::Tensor heads = split_heads(x, 3);
  EXPECT_EQ(heads.sizes().vec(), (std::vector<int64_t>{1, 2, 2, 3}));
  EXPECT_EQ(heads[0][1][0][0].item<int64_t>(), 3);  // head 1, time 0
  EXPECT_EQ(heads[0][0][1][0].item<int64_t>(), 6);  // head 0, time 1
}

}  // namespace shoal::models
