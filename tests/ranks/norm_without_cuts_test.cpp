// The bits of the gradient norm do not tell how many ranks share the gradients.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "training/matrix_run.h"

namespace shoal::testing {
namespace {

// Few bits and many magnitudes: the mean of equal ones over ranks is exact, and another order of squares shows.
at::Tensor gradient_of(int64_t numel, uint64_t seed) {
  std::mt19937_64 random(seed);
  at::Tensor values = at::empty({numel});
  for (int64_t i = 0; i < numel; ++i) {
    values.mutable_data_ptr<float>()[i] =
        std::ldexp(static_cast<float>(random() % 4096 + 1), static_cast<int>(random() % 24) - 24);
  }
  return values;
}

// Flats of one run, of parts of blocks, and of several blocks; small ones kept whole; two norms, of two steps.
std::vector<uint64_t> norms_at(int world, int stage, Precision precision, double clipping) {
  const std::vector<std::vector<int64_t>> numels = {{50'001, 3}, {5'000, 130, 12'345}, {77}};
  return on_threads<std::vector<uint64_t>>(world, [&](Group& group) {
    at::set_num_threads(1);
    std::vector<std::vector<at::Tensor>> weights, grads;
    std::vector<Unit> units;
    for (size_t unit = 0; unit < numels.size(); ++unit) {
      units.push_back({"u" + std::to_string(unit), {}});
      weights.emplace_back();
      grads.emplace_back();
      for (const int64_t numel : numels[unit]) {
        weights.back().push_back(at::empty({numel}).fill_(0.5).set_requires_grad(true));
        units.back().params.push_back(
            {"w" + std::to_string(unit) + "." + std::to_string(numel), weights.back().back()});
        grads.back().push_back(gradient_of(numel, static_cast<uint64_t>(numel)));
      }
    }
    RunOptions run;
    run.stage = stage;
    run.precision = precision;
    run.persistence_threshold = 100;
    Config config = config_of(run, world);
    config.gradient_clipping = clipping;
    Engine engine(units, config, group);
    std::vector<uint64_t> norms;
    for (int step = 0; step < 2; ++step) {
      at::Tensor loss = at::empty({}).fill_(0.0);
      for (size_t unit = 0; unit < units.size(); ++unit) {
        loss = engine.run(static_cast<int>(unit), loss, [&](const at::Tensor& before) {
          at::Tensor sum = before;
          for (size_t param = 0; param < weights[unit].size(); ++param) {
            sum = sum + (weights[unit][param].to(at::kFloat) * grads[unit][param]).sum();
          }
          return sum;
        });
      }
      engine.backward(loss);
      norms.push_back(std::bit_cast<uint64_t>(engine.step().grad_norm));
    }
    return norms;
  })[0];
}

TEST(NormWithoutCuts, HasTheSameBitsAtEveryNumberOfRanks) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const std::vector<uint64_t> one = norms_at(1, 0, precision, 0);
    EXPECT_TRUE(std::isfinite(std::bit_cast<double>(one[0])) && std::bit_cast<double>(one[0]) > 0);
    for (const int world : {1, 2, 3, 4, 6, 8}) {
      for (const int stage : {0, 1, 2, 3}) {
        if (world > 4 && stage % 2 == 0) continue;
        EXPECT_EQ(norms_at(world, stage, precision, stage == 3 ? 0.5 : 0.0), one)
            << world << " ranks, stage " << stage << ", " << name_of(precision);
      }
    }
  }
}

}  // namespace
}  // namespace shoal::testing
