#include "models/ops/cuda/cross_entropy.h"

#include <ATen/core/grad_mode.h>

#include "cuda/tensors.h"
#include "models/ops/launch.h"
#include "models/ops/linear_cross_entropy.h"
#include "shoal/error.h"

namespace shoal {

using models::ops::dtype_of;
using models::ops::linear_cross_entropy;
using models::ops::stream_of;
using models::ops::tokens_a_chunk;

namespace {

using FusedCrossEntropy = OnGpuTensors;

at::Tensor random_targets(int64_t count, int64_t vocab) {
  return at::randint(0, vocab, {count}, at::TensorOptions(at::kCUDA).dtype(at::kLong));
}

// Losses of rows, and the gradient that the kernel leaves in place of the logits.
struct Rows {
  at::Tensor losses, gradient;
};
Rows rows_of(const at::Tensor& logits, const at::Tensor& targets, bool with_gradient = true) {
  const int64_t rows = logits.size(0), vocab = logits.size(1);
  const int64_t stride = (vocab + 7) / 8 * 8;
  const at::Tensor buffer = at::empty({rows, stride}, logits.options());  // its padding holds NaN
  buffer.narrow(1, 0, vocab).copy_(logits);
  Rows out;
  out.losses = at::empty({rows}, logits.options().dtype(at::kFloat));
  models::ops::cuda::CrossEntropy args;
  args.logits = buffer.mutable_data_ptr();
  args.targets = targets.const_data_ptr<int64_t>();
  args.losses = out.losses.mutable_data_ptr<float>();
  args.rows = rows;
  args.vocab = vocab;
  args.stride = stride;
  args.with_gradient = with_gradient;
  args.dtype = dtype_of(logits);
  models::ops::cuda::cross_entropy(args, stream_of(logits));
  out.gradient = buffer.narrow(1, 0, vocab);
  return out;
}

}  // namespace

TEST_F(FusedCrossEntropy, LossesAndGradientOfRowsAreNearFp64) {
  const std::vector<int64_t> vocabs =
      tests_are_small() ? std::vector<int64_t>{7, 1000} : std::vector<int64_t>{1, 2, 7, 29, 1000, 32000, 50257, 128256};
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t vocab : vocabs) {
      const at::Tensor logits = on_gpu({5, vocab}, dtype, 4);
      const at::Tensor targets = random_targets(5, vocab);
      const Rows rows = rows_of(logits, targets);
      const at::Tensor log_softmax = logits.to(at::kDouble).log_softmax(-1);
      const at::Tensor wanted = -log_softmax.gather(1, targets.unsqueeze(1)).squeeze(1);
      const std::string words = words_of("cross_entropy", dtype, {vocab});
      EXPECT_LT(rows.losses.to(at::kDouble).sub(wanted).abs().max().item<double>(), 1e-5) << words;
      at::Tensor gradient = log_softmax.exp();
      gradient.scatter_add_(1, targets.unsqueeze(1), at::full({5, 1}, -1.0, gradient.options()));
      EXPECT_LT(relative_error(rows.gradient, gradient), vocab == 1 ? 1e-6 : 2 * tolerance_of(dtype)) << words;
      EXPECT_TRUE(rows_of(logits, targets).gradient.equal(rows.gradient)) << words;
      const Rows loss_only = rows_of(logits, targets, false);
      EXPECT_TRUE(loss_only.losses.equal(rows.losses)) << words;
      EXPECT_TRUE(loss_only.gradient.equal(logits)) << words;
    }
  }
}

// More rows than are under way at once, some of them ignored; rows that fit where a block keeps them, and longer ones.
TEST_F(FusedCrossEntropy, ManyRowsAreEachWhatTheyAreAlone) {
  const std::vector<int64_t> vocabs =
      tests_are_small() ? std::vector<int64_t>{29} : std::vector<int64_t>{29, 1000, 32000, 50257, 128256, 200000};
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t vocab : vocabs) {
      const int64_t rows = vocab < 10000 ? 3000 : 500;
      const at::Tensor logits = on_gpu({rows, vocab}, dtype, 4);
      const at::Tensor targets = random_targets(rows, vocab);
      for (int64_t row = 1; row < rows; row += 7) targets[row].fill_(models::ops::cuda::kIgnoredTarget);
      const Rows all = rows_of(logits, targets);
      const std::string words = words_of("rows", dtype, {rows, vocab});
      EXPECT_TRUE(rows_of(logits, targets, false).losses.equal(all.losses)) << words;
      for (const int64_t row : {int64_t{0}, int64_t{1}, rows / 2, rows - 3, rows - 2, rows - 1}) {
        const Rows alone = rows_of(logits.narrow(0, row, 1), targets.narrow(0, row, 1));
        EXPECT_TRUE(all.losses.narrow(0, row, 1).equal(alone.losses)) << words << ", row " << row;
        EXPECT_TRUE(all.gradient.narrow(0, row, 1).equal(alone.gradient)) << words << ", row " << row;
      }
      const at::Tensor ignored = targets.eq(models::ops::cuda::kIgnoredTarget);
      EXPECT_TRUE(all.losses.masked_select(ignored).eq(0).all().item<bool>()) << words;
      const at::Tensor kept = ignored.logical_not().nonzero().squeeze(1);
      const at::Tensor log_softmax = logits.index_select(0, kept).to(at::kDouble).log_softmax(-1);
      const at::Tensor places = targets.index_select(0, kept).unsqueeze(1);
      const at::Tensor losses = -log_softmax.gather(1, places).squeeze(1);
      EXPECT_LT(all.losses.index_select(0, kept).to(at::kDouble).sub(losses).abs().max().item<double>(), 2e-5) << words;
      const at::Tensor gradient = log_softmax.exp();
      gradient.scatter_add_(1, places, at::full(places.sizes(), -1.0, gradient.options()));
      EXPECT_LT(relative_error(all.gradient.index_select(0, kept), gradient), 2 * tolerance_of(dtype)) << words;
    }
  }
}

TEST_F(FusedCrossEntropy, LargeLogitsNeitherOverflowNorVanish) {
  const at::Tensor logits = at::tensor({-1e4f, 3e4f, 2.9e4f, 0.0f}).reshape({1, 4}).to(at::kCUDA);
  const Rows first = rows_of(logits, at::full({1}, 1, at::TensorOptions(at::kCUDA).dtype(at::kLong)));
  EXPECT_NEAR(first.losses.item<float>(), 0, 1e-6);
  const Rows third = rows_of(logits, at::full({1}, 3, at::TensorOptions(at::kCUDA).dtype(at::kLong)));
  EXPECT_NEAR(third.losses.item<float>(), 3e4f, 0.01);
  EXPECT_TRUE(third.gradient.isfinite().all().item<bool>());
}

TEST_F(FusedCrossEntropy, IgnoredTargetsCountForNothingAndUnknownOnesAreLoud) {
  const at::Tensor x = on_gpu({6, 16}, at::kFloat), weight = on_gpu({11, 16}, at::kFloat);
  at::Tensor targets = random_targets(6, 11);
  targets[2].fill_(-100);
  targets[5].fill_(-100);
  expect_near_reference(
      {x, weight}, [&](const Tensors& t) -> Tensors { return {linear_cross_entropy(t[0], t[1], targets)}; },
      [&](const Tensors& t) -> Tensors { return {at::cross_entropy_loss(at::linear(t[0], t[1]), targets)}; }, 1e-5,
      "ignored");
  targets[0].fill_(11);
  EXPECT_TRUE(linear_cross_entropy(x, weight, targets).isnan().item<bool>());
  targets[0].fill_(-1);
  EXPECT_TRUE(linear_cross_entropy(x, weight, targets).isnan().item<bool>());
}

TEST_F(FusedCrossEntropy, HeadAndLossAreNearFp64) {
  struct Shape {
    int64_t tokens, hidden, vocab;
  };
  for (const at::ScalarType dtype : kDtypes) {
    for (const Shape& s : {Shape{1, 8, 2}, Shape{33, 24, 29}, Shape{130, 64, 1001}, Shape{257, 128, 50257}}) {
      const at::Tensor targets = random_targets(s.tokens, s.vocab);
      // Logits are rounded to the dtype before the softmax: of size about 1, so that this costs little.
      const double scale = 1 / std::sqrt(static_cast<double>(s.hidden));
      expect_near_reference(
          {on_gpu({s.tokens, s.hidden}, dtype), on_gpu({s.vocab, s.hidden}, dtype, scale)},
          [&](const Tensors& t) -> Tensors { return {linear_cross_entropy(t[0], t[1], targets)}; },
          [&](const Tensors& t) -> Tensors { return {at::cross_entropy_loss(at::linear(t[0], t[1]), targets)}; },
          dtype == at::kFloat ? 2e-5 : 3 * tolerance_of(dtype),
          words_of("linear_cross_entropy", dtype, {s.tokens, s.hidden, s.vocab}));
    }
  }
}

// Logits of size about 1 under a cap of 1.5: it bends most of them.
TEST_F(FusedCrossEntropy, CappedLogitsAreNearFp64InEveryDtype) {
  const double softcap = 1.5;
  const auto plain = [&](const Tensors& t, const at::Tensor& targets) {
    return at::cross_entropy_loss(at::linear(t[0], t[1]).div(softcap).tanh().mul(softcap), targets);
  };
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor targets = random_targets(130, 1001);
    const Tensors inputs = {on_gpu({130, 64}, dtype), on_gpu({1001, 64}, dtype, 0.125)};
    expect_near_reference(
        inputs, [&](const Tensors& t) -> Tensors { return {linear_cross_entropy(t[0], t[1], targets, softcap)}; },
        [&](const Tensors& t) -> Tensors { return {plain(t, targets)}; },
        dtype == at::kFloat ? 2e-5 : 3 * tolerance_of(dtype), words_of("capped", dtype, {130, 64, 1001}));
    at::NoGradGuard no_grad;
    const Tensors wide = {inputs[0].to(at::kDouble), inputs[1].to(at::kDouble)};
    EXPECT_NEAR(linear_cross_entropy(inputs[0], inputs[1], targets, softcap).item<double>(),
                plain(wide, targets).item<double>(), dtype == at::kFloat ? 1e-5 : 1e-2);
  }
}

TEST_F(FusedCrossEntropy, ChunksOfTokensAddUp) {
  const int64_t hidden = tests_are_small() ? 60 : 64;  // racecheck breaks in cuBLAS's kernels for aligned rows
  const int64_t tokens = 2500, vocab = 128256;
  ASSERT_LT(tokens_a_chunk(tokens, vocab, hidden, DType::bf16), tokens / 2);
  const at::Tensor targets = random_targets(tokens, vocab);
  const at::Tensor x = on_gpu({tokens, hidden}, at::kBFloat16), weight = on_gpu({vocab, hidden}, at::kBFloat16, 0.125);
  expect_near_reference(
      {x, weight}, [&](const Tensors& t) -> Tensors { return {linear_cross_entropy(t[0], t[1], targets)}; },
      [&](const Tensors& t) -> Tensors { return {at::cross_entropy_loss(at::linear(t[0], t[1]), targets)}; },
      3 * tolerance_of(at::kBFloat16), "chunks");
  at::NoGradGuard no_grad;
  const double evaluated = linear_cross_entropy(x, weight, targets).item<double>();
  EXPECT_NEAR(evaluated, at::cross_entropy_loss(at::linear(x, weight).to(at::kFloat), targets).item<double>(), 1e-4);
}

// A loss scale of fp16 meets the gradients before they are rounded: they equal those of the eager operations in fp32.
TEST_F(FusedCrossEntropy, TheIncomingGradientScalesBothGradientsBeforeRounding) {
  const at::Tensor targets = random_targets(4096, 997);
  const Tensors inputs = {on_gpu({4096, 32}, at::kHalf), on_gpu({997, 32}, at::kHalf, 0.2)};
  const double scale = 65536;
  expect_near_reference(
      inputs, [&](const Tensors& t) -> Tensors { return {linear_cross_entropy(t[0], t[1], targets).mul(scale)}; },
      [&](const Tensors& t) -> Tensors { return {at::cross_entropy_loss(at::linear(t[0], t[1]), targets).mul(scale)}; },
      3 * tolerance_of(at::kHalf), "scaled");
}

TEST_F(FusedCrossEntropy, RowsThatAreNotAlignedAreRefused) {
  models::ops::cuda::CrossEntropy args;
  args.rows = 1;
  args.vocab = args.stride = 7;
  EXPECT_THROW(models::ops::cuda::cross_entropy(args, nullptr), Error);
}

}  // namespace shoal
