#include "models/ops/norm.h"

#include "cuda/tensors.h"
#include "models/ops/cuda/norm.h"
#include "models/ops/launch.h"
#include "shoal/error.h"

namespace shoal {

using models::ops::add_layer_norm;
using models::ops::add_rms_norm;
using models::ops::AddedNorm;
using models::ops::fork_layer_norm;
using models::ops::fork_rms_norm;
using models::ops::ForkedNorm;
using models::ops::layer_norm;
using models::ops::rms_norm;

namespace {

using FusedNorms = OnGpuTensors;
constexpr double kEps = 1e-5;

std::vector<std::vector<int64_t>> shapes() {
  if (tests_are_small()) return {{3, 7}, {33, 64}, {5, 2048}, {1100, 2048}, {3, 4104}};
  return {{1, 5},
          {1, 8},
          {3, 7},
          {700, 16},
          {5, 17},
          {129, 64},
          {2, 9, 5, 128},
          {33, 1000},
          {1200, 768},
          {9, 2048},
          {17, 2, 4096},
          {7, 4097},
          {5, 4104},
          {7, 5120},
          {5, 8192},
          {3, 9999},
          {3, 14336},
          {2, 16384},
          // Many rows: of the first three more than the blocks of the backward pass take at once.
          {6000, 2048},
          {2000, 4096},
          {1000, 5120},
          {9000, 24}};
}

at::Tensor plain_rms(const at::Tensor& x, const at::Tensor& weight) {
  return x.mul(x.square().mean(-1, true).add(kEps).rsqrt()).mul(weight);
}
at::Tensor plain_layer(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor centered = x.sub(x.mean(-1, true));
  return centered.mul(centered.square().mean(-1, true).add(kEps).rsqrt()).mul(weight).add(bias);
}

}  // namespace

TEST_F(FusedNorms, RmsNormIsNearFp64) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const std::vector<int64_t>& shape : shapes()) {
      expect_near_reference(
          {on_gpu(shape, dtype, 3), on_gpu({shape.back()}, dtype)},
          [](const Tensors& t) -> Tensors { return {rms_norm(t[0], t[1], kEps)}; },
          [](const Tensors& t) -> Tensors { return {plain_rms(t[0], t[1])}; }, tolerance_of(dtype),
          words_of("rms_norm", dtype, shape));
    }
  }
}

TEST_F(FusedNorms, LayerNormIsNearFp64) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const std::vector<int64_t>& shape : shapes()) {
      expect_near_reference(
          {on_gpu(shape, dtype, 3).add(2), on_gpu({shape.back()}, dtype), on_gpu({shape.back()}, dtype)},
          [](const Tensors& t) -> Tensors { return {layer_norm(t[0], t[1], t[2], kEps)}; },
          [](const Tensors& t) -> Tensors { return {plain_layer(t[0], t[1], t[2])}; }, 2 * tolerance_of(dtype),
          words_of("layer_norm", dtype, shape));
    }
  }
}

// The sum is rounded before it is normed, so the reference begins with the rounded sum.
TEST_F(FusedNorms, TheSumIsThatOfTheLibraryAndTheNormThatOfTheSum) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const std::vector<int64_t>& shape : shapes()) {
      const at::Tensor x = on_gpu(shape, dtype), residual = on_gpu(shape, dtype),
                       weight = on_gpu({shape.back()}, dtype);
      const AddedNorm both = add_rms_norm(x, residual, weight, kEps);
      EXPECT_TRUE(both.sum.equal(x.add(residual))) << words_of("sum", dtype, shape);
      EXPECT_TRUE(both.norm.equal(rms_norm(both.sum, weight, kEps))) << words_of("norm", dtype, shape);
      const AddedNorm layer = add_layer_norm(x, residual, weight, weight, kEps);
      EXPECT_TRUE(layer.sum.equal(both.sum));
      EXPECT_TRUE(layer.norm.equal(layer_norm(both.sum, weight, weight, kEps)));
    }
  }
}

TEST_F(FusedNorms, BothGradientsOfTheSumMeet) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const std::vector<int64_t>& shape : shapes()) {
      // Whole numbers: the sum is exact, so that the reference norms the same values.
      const at::Tensor x = on_gpu(shape, dtype, 3).round(), residual = on_gpu(shape, dtype, 3).round();
      const at::Tensor weight = on_gpu({shape.back()}, dtype), bias = on_gpu({shape.back()}, dtype);
      expect_near_reference(
          {x, residual, weight},
          [](const Tensors& t) -> Tensors {
            const AddedNorm both = add_rms_norm(t[0], t[1], t[2], kEps);
            return {both.sum, both.norm};
          },
          [](const Tensors& t) -> Tensors {
            return {t[0].add(t[1]), plain_rms(t[0].add(t[1]), t[2])};
          },
          tolerance_of(dtype), words_of("add_rms_norm", dtype, shape));
      expect_near_reference(
          {x, residual, weight, bias},
          [](const Tensors& t) -> Tensors {
            const AddedNorm both = add_layer_norm(t[0], t[1], t[2], t[3], kEps);
            return {both.sum, both.norm};
          },
          [](const Tensors& t) -> Tensors {
            return {t[0].add(t[1]), plain_layer(t[0].add(t[1]), t[2], t[3])};
          },
          2 * tolerance_of(dtype), words_of("add_layer_norm", dtype, shape));
    }
  }
}

TEST_F(FusedNorms, WhatUsesXBesideTheNormHasItsGradientAdded) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{33, 64}, {5, 2048}, {3, 4104}}) {
      const at::Tensor x = on_gpu(shape, dtype);
      const at::Tensor weight = on_gpu({shape.back()}, dtype), bias = on_gpu({shape.back()}, dtype);
      EXPECT_TRUE(fork_rms_norm(x, weight, kEps).norm.equal(rms_norm(x, weight, kEps)));
      expect_near_reference(
          {x, weight},
          [](const Tensors& t) -> Tensors {
            const ForkedNorm both = fork_rms_norm(t[0], t[1], kEps);
            return {both.x.mul(2), both.norm};
          },
          [](const Tensors& t) -> Tensors {
            return {t[0].mul(2), plain_rms(t[0], t[1])};
          },
          tolerance_of(dtype), words_of("fork_rms_norm", dtype, shape));
      expect_near_reference(
          {x, weight, bias},
          [](const Tensors& t) -> Tensors {
            const ForkedNorm both = fork_layer_norm(t[0], t[1], t[2], kEps);
            return {both.x.mul(2), both.norm};
          },
          [](const Tensors& t) -> Tensors {
            return {t[0].mul(2), plain_layer(t[0], t[1], t[2])};
          },
          2 * tolerance_of(dtype), words_of("fork_layer_norm", dtype, shape));
    }
  }
}

TEST_F(FusedNorms, MemoryMayLieAtAnyElement) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t columns : {64, 2048, 4096, 8192}) {
      // Whole numbers: the sum is exact.
      const at::Tensor x = unaligned(on_gpu({5, columns}, dtype, 3).round());
      const at::Tensor residual = unaligned(on_gpu({5, columns}, dtype, 3).round());
      expect_near_reference(
          {x, residual, unaligned(on_gpu({columns}, dtype)), unaligned(on_gpu({columns}, dtype))},
          [](const Tensors& t) -> Tensors {
            const AddedNorm both = add_layer_norm(t[0], t[1], t[2], t[3], kEps);
            return {both.sum, both.norm, rms_norm(t[0], t[2], kEps)};
          },
          [](const Tensors& t) -> Tensors {
            return {t[0].add(t[1]), plain_layer(t[0].add(t[1]), t[2], t[3]), plain_rms(t[0], t[2])};
          },
          2 * tolerance_of(dtype), words_of("unaligned", dtype, {columns}));
    }
  }
}

// What GPUs of other compute capabilities have: the ring of rows is of one there, or none. See norm_backward.cuh.
TEST_F(FusedNorms, LessSharedMemoryGivesTheSameBits) {
  namespace fused = models::ops::cuda;
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t columns : {1, 7, 64, 2048, 4096, 4097, 4104, 8192, 16384}) {
      for (const bool with_dsum : {false, true}) {
        constexpr int64_t kRows = 301;
        const at::Tensor x = on_gpu({kRows, columns}, dtype), dy = on_gpu({kRows, columns}, dtype);
        const at::Tensor dsum = on_gpu({kRows, columns}, dtype), weight = on_gpu({columns}, dtype);
        const at::Tensor mean = on_gpu({kRows}, at::kFloat), rstd = on_gpu({kRows}, at::kFloat);
        const at::Tensor partials = at::empty({fused::norm_partials_numel(kRows, columns, true)}, rstd.options());
        Tensors expected;
        for (const int block_shared : {0, 163 * 1024, 99 * 1024}) {
          const Tensors made = {at::zeros_like(x), at::zeros_like(weight), at::zeros_like(weight)};
          const fused::NormBackward args{.x = x.data_ptr(),
                                         .weight = weight.data_ptr(),
                                         .mean = mean.data_ptr<float>(),
                                         .rstd = rstd.data_ptr<float>(),
                                         .dy = dy.data_ptr(),
                                         .dsum = with_dsum ? dsum.data_ptr() : nullptr,
                                         .dx = made[0].data_ptr(),
                                         .dweight = made[1].data_ptr(),
                                         .dbias = made[2].data_ptr(),
                                         .partials = partials.data_ptr<float>(),
                                         .rows = kRows,
                                         .columns = columns,
                                         .dtype = models::ops::dtype_of(x),
                                         .block_shared = block_shared};
          fused::layer_norm_backward(args, nullptr);
          if (expected.empty()) expected = made;
          for (size_t i = 0; i < made.size(); ++i) {
            EXPECT_TRUE(made[i].equal(expected[i]))
                << words_of("layer_norm_backward", dtype, {columns}) << ", gradient " << i << " in " << block_shared;
          }
        }
      }
    }
  }
}

TEST_F(FusedNorms, AnInputMayLieAcross) {
  const at::Tensor weight = on_gpu({64}, at::kBFloat16);
  expect_near_reference(
      {on_gpu({3, 4, 5, 64}, at::kBFloat16), weight},
      [](const Tensors& t) -> Tensors { return {rms_norm(t[0].transpose(1, 2), t[1], kEps)}; },
      [](const Tensors& t) -> Tensors { return {plain_rms(t[0].transpose(1, 2), t[1])}; }, tolerance_of(at::kBFloat16),
      "across");
}

TEST_F(FusedNorms, AnUnusedResultGivesNoGradient) {
  at::Tensor x = on_gpu({4, 64}, at::kFloat).set_requires_grad(true);
  at::Tensor weight = on_gpu({64}, at::kFloat).set_requires_grad(true);
  const AddedNorm both = add_rms_norm(x, on_gpu({4, 64}, at::kFloat), weight, kEps);
  torch::autograd::backward({both.sum.sum()});
  EXPECT_TRUE(x.grad().eq(1).all().item<bool>());
  EXPECT_FALSE(weight.grad().defined());
}

TEST_F(FusedNorms, RowsLongerThanTheKernelTakesAreRefusedByItAndLeftToTheLibrary) {
  models::ops::cuda::NormForward args;
  args.rows = 1;
  args.columns = models::ops::cuda::kMostNormColumns + 1;
  EXPECT_THROW(models::ops::cuda::rms_norm(args, nullptr), Error);
  const int64_t columns = models::ops::cuda::kMostNormColumns + 8;
  const at::Tensor x = on_gpu({2, columns}, at::kFloat), weight = on_gpu({columns}, at::kFloat);
  EXPECT_LT(relative_error(rms_norm(x, weight, kEps), plain_rms(x.to(at::kDouble), weight.to(at::kDouble))), 1e-5);
}

}  // namespace shoal
