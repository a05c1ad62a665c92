// The engine against plain PyTorch in one process on the whole batch.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>

#include "training/matrix_run.h"

namespace shoal::testing {
namespace {

// Adam's first steps turn gradients near zero into steps of full size, whatever their rounding: a rate at which such a
// step is small keeps the comparison one of the engine.
constexpr double kLr = 1e-3;

// AdamW by libtorch's own fused kernel, on the concatenated batches of all ranks, clipped by the global norm.
std::vector<double> plain_losses(int world, int steps, double clip) {
  at::set_num_threads(1);
  MatrixModel model;
  at::Generator unused = at::detail::createCPUGenerator(0);
  std::vector<at::Tensor> params, first, second, counts;
  for (const at::Tensor& tensor : model.tensors()) {
    if (!tensor.requires_grad() || tensor.numel() == 0) continue;
    params.push_back(tensor);
    first.push_back(at::zeros_like(tensor).detach());
    second.push_back(at::zeros_like(tensor).detach());
    counts.push_back(at::zeros({}, at::kFloat));
  }
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    std::vector<at::Tensor> ids, labels;
    for (int rank = 0; rank < world; ++rank) {
      const Batch batch = batch_of(step, 0, rank);
      ids.push_back(batch.ids);
      labels.push_back(batch.labels);
    }
    at::Tensor x = at::embedding(model.wte, at::cat(ids));
    x = model.twice(x);
    x = model.drop(x, 0, unused);
    x = x.add(at::linear(x, model.sometimes));
    x = model.twice(x);
    const at::Tensor loss = cross_entropy(model.head(x), at::cat(labels));
    losses.push_back(loss.item<double>());
    loss.backward();
    at::AutoGradMode without_graph(false);
    std::vector<at::Tensor> grads;
    double squares = 0;
    for (const at::Tensor& param : params) {
      grads.push_back(param.grad());
      squares += param.grad().to(at::kDouble).pow(2).sum().item<double>();
    }
    const double factor = clip > 0 ? std::max(1.0, (std::sqrt(squares) + 1e-6) / clip) : 1.0;
    for (at::Tensor& grad : grads) grad.div_(factor);
    for (at::Tensor& count : counts) count.add_(1);
    at::_fused_adamw_(params, grads, first, second, {}, counts, kLr, 0.9, 0.999, /*weight_decay=*/0.01, 1e-8,
                      /*amsgrad=*/false, /*maximize=*/false);
    for (const at::Tensor& param : params) param.mutable_grad() = at::Tensor();
  }
  return losses;
}

TEST(PlainTorch, Fp32LossesAgreeWithin1e5Relative) {
  for (const double clip : {0.0, 0.05}) {
    for (const int world : {1, 2, 4}) {
      const std::vector<double> plain = plain_losses(world, 20, clip);
      for (const int stage : {0, 3}) {
        RunOptions options;
        options.stage = stage;
        options.dropout = 0;
        options.skip_units = false;
        options.overflow_step = -1;
        options.clip = clip > 0;
        options.one_group = true;
        options.lr = kLr;
        const std::vector<RunResult> ranks = train_on_threads(world, options);
        for (int step = 0; step < 20; ++step) {
          double mean = 0;
          for (const RunResult& rank : ranks) mean += rank.losses[step] / world;
          // Formulas are the same, orders of sums are not (the mean over ranks, the norm); AdamW's division makes of a
          // rounding, 6e-8, some 1e-6 in 20 steps. A wrong mean, clip or gradient is 1e-3 and more.
          EXPECT_NEAR(mean, plain[step], 1e-5 * std::abs(plain[step]))
              << "world " << world << " stage " << stage << " step " << step;
        }
        EXPECT_LT(plain.back(), plain.front() + 1.0);
      }
    }
  }
}

}  // namespace
}  // namespace shoal::testing
