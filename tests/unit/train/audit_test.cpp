#include "train/audit.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/from_config.h"
#include "shoal/error.h"
#include "training/matrix_engine.h"

namespace shoal::train {
namespace {

using ::testing::HasSubstr;
using testing::MatrixEngine;

constexpr int kSteps = 4;

testing::RunOptions run_at(int stage, int64_t accumulation = 1) {
  testing::RunOptions options;
  options.stage = stage;
  options.precision = Precision::bf16;
  options.overflow_step = -1;
  options.leaves = 3 * static_cast<int>(accumulation);
  return options;
}

at::Tensor loss_of_leaf(MatrixEngine& trained, int64_t step, int64_t leaf) {
  return forward(*trained.engine, trained.model, testing::batch_of(step, leaf, 0),
                 {.dropout = 0.25, .recompute = false, .use_sometimes = (step + leaf) % 3 != 0});
}

// What a rank gets wrong.
struct Flaw {
  int rank = -1;
  std::function<at::Tensor(const at::Tensor& loss)> in_loss = [](const at::Tensor& loss) { return loss; };
  std::function<void(MatrixEngine&)> in_weights = [](MatrixEngine&) {};
};

// Trains with an audit before each step, and returns the weights.
std::string weights_after(int world, const testing::RunOptions& options, bool audited, const Flaw& flaw = {}) {
  return testing::on_threads<std::string>(world, [&](Group& group) {
    MatrixEngine trained(group, options);
    Engine& engine = *trained.engine;
    const bool flawed = flaw.rank == group.rank();
    for (int64_t step = 0; step < kSteps; ++step) {
      if (audited) {
        if (flawed && step == 2) flaw.in_weights(trained);
        Audit audit(engine, trained.model.units(), group, mesh_of(engine.config(), group.size()));
        const std::string found = audit.find([&](int64_t leaf) {
          const at::Tensor loss = loss_of_leaf(trained, step, leaf);
          return flawed && step == 2 ? flaw.in_loss(loss) : loss;
        });
        if (!found.empty()) throw AuditError(step, found);
      }
      for (int64_t micro = 0; micro < engine.config().batch.accumulation_steps; ++micro) {
        engine.backward(loss_of_leaf(trained, step, micro * group.size() + group.rank()));
        engine.step();
      }
    }
    return trained.weights();
  })[0];
}

std::string found_in(int world, const testing::RunOptions& options, const Flaw& flaw) {
  try {
    weights_after(world, options, true, flaw);
    return "nothing";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Audit, FindsNothingAndLeavesNoMarkInASoundRun) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const int64_t accumulation : {1, 2}) {
      testing::RunOptions options = run_at(stage, accumulation);
      EXPECT_EQ(weights_after(3, options, true), weights_after(3, options, false)) << stage << ", " << accumulation;
    }
  }
  EXPECT_EQ(weights_after(1, run_at(2), true), weights_after(1, run_at(2), false));
}

// The updates of the step before are still to come when an audit begins.
TEST(Audit, LeavesNoMarkWhereUpdatesWaitUntilAUnitIsNeeded) {
  for (int stage = 0; stage <= 3; ++stage) {
    testing::RunOptions options = run_at(stage);
    options.defer = true;
    EXPECT_EQ(weights_after(3, options, true), weights_after(3, options, false)) << stage;
    options.offload.tier = Tier::host;
    EXPECT_EQ(weights_after(3, options, true), weights_after(3, options, false)) << stage << ", states in host memory";
  }
}

TEST(Audit, LeavesNoMarkWithAGroupedModelHostStatesAndRecompute) {
  testing::RunOptions options = run_at(3);
  options.leaves = 4;
  options.shard_size = 2;
  options.recompute = true;
  options.offload.tier = Tier::host;
  EXPECT_EQ(weights_after(4, options, true), weights_after(4, options, false));
}

// The value is as it should be, its gradients are not.
at::Tensor with_other_gradients(const at::Tensor& loss) {
  return loss.detach() + (loss - loss.detach()) * at::full({}, 1.25, loss.options());
}

TEST(Audit, NamesTheRankWhoseGradientsAreWrong) {
  for (int stage = 0; stage <= 3; ++stage) {
    const std::string found = found_in(3, run_at(stage), {.rank = 2, .in_loss = with_other_gradients});
    EXPECT_THAT(
        found,
        HasSubstr(
            "[audit] before step 2: rank 2 computed other results than two other ranks, in the gradients of unit "))
        << stage;
  }
}

TEST(Audit, NamesTheRankWhoseLossIsAnotherEachTime) {
  int calls = 0;
  const Flaw flaw = {.rank = 1, .in_loss = [&](const at::Tensor& loss) { return loss * (1.0 + ++calls); }};
  EXPECT_THAT(found_in(3, run_at(3), flaw),
              HasSubstr("rank 1 computed one micro-batch twice with different results, in the loss of micro-batch "));
}

TEST(Audit, OfTwoRanksBothAreNamed) {
  EXPECT_THAT(found_in(2,
                       [] {
                         testing::RunOptions options = run_at(1);
                         options.leaves = 2;
                         return options;
                       }(),
                       {.rank = 0, .in_loss = with_other_gradients}),
              HasSubstr("ranks 0, 1 computed different results"));
}

TEST(Audit, NamesTheRankWhoseWholeWeightsAreOthers) {
  const Flaw flaw = {.rank = 1, .in_weights = [](MatrixEngine& trained) {
                       const at::NoGradGuard without_graph;
                       trained.model.w1.detach().view(-1)[5] += 0.5;
                     }};
  for (const int stage : {0, 1, 2}) {
    EXPECT_THAT(found_in(3, run_at(stage), flaw), HasSubstr("rank 1 has other weights than the other ranks, in "))
        << stage;
  }
}

TEST(Audit, WantsADeterministicGpu) {
  Config config;
  EXPECT_THROW(check_auditable(config, at::Device("cuda:0"), false), Error);
  EXPECT_NO_THROW(check_auditable(config, at::Device("cuda:0"), true));
  EXPECT_NO_THROW(check_auditable(config, at::kCPU, false));
  config.zero.error_feedback = 0.8;
  EXPECT_THROW(check_auditable(config, at::kCPU, false), Error) << "dropped passes would change what is fed back";
}

TEST(BitsDigest, OneBitOfAnyElementShowsInIt) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    at::Tensor values = at::ones({70001}, at::TensorOptions(dtype));
    const int64_t before = bits_digest(values).item<int64_t>();
    EXPECT_EQ(bits_digest(values.clone()).item<int64_t>(), before);
    EXPECT_TRUE(at::equal(values, at::ones({70001}, values.options()))) << "it only reads";
    for (const int64_t at : {0, 1, 65535, 65536, 70000}) {
      at::Tensor other = values.clone();
      other[at] = -1.0;
      EXPECT_NE(bits_digest(other).item<int64_t>(), before) << at;
    }
    at::Tensor swapped = values.clone();
    swapped[3] = 2.0;
    at::Tensor elsewhere = values.clone();
    elsewhere[4] = 2.0;
    EXPECT_NE(bits_digest(swapped).item<int64_t>(), bits_digest(elsewhere).item<int64_t>());
  }
  EXPECT_EQ(bits_digest(at::ones({0})).item<int64_t>(), 0);
}

}  // namespace
}  // namespace shoal::train
