// Stop and resume: at any world size and stage the states are the same bits, and at the same world size the run goes
// on as if it had never stopped.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "shoal/checkpoint.h"
#include "temp_folder.h"
#include "training/outcome.h"
#include "training/state_bits.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kOtherModel = 2, kOtherSeed = 77;  // of the run that resumes: what it does not load differs

struct Bits {
  std::string state, kept, weights;
};

Bits save_trained(Group& world, const RunOptions& options, const std::string& folder) {
  Trainee trainee(world, config_of(options, world.size()));
  trainee.train(0, 3, options);
  save_checkpoint(*trainee.engine, world, {folder, 3, 0, {}});
  return {state_bits(*trainee.engine, world), kept_bits(*trainee.engine), trainee.weights()};
}

Bits load(Group& world, const RunOptions& options, const std::string& folder) {
  Trainee trainee(world, config_of(options, world.size()), kOtherModel);
  load_checkpoint(*trainee.engine, world, folder);
  return {state_bits(*trainee.engine, world), kept_bits(*trainee.engine), trainee.weights()};
}

std::vector<Bits> loaded_on_threads(int world, const RunOptions& options, const std::string& folder) {
  return on_threads<Bits>(world, [&](Group& group) { return load(group, options, folder); });
}

class Reshard : public ::testing::TestWithParam<Precision> {};

TEST_P(Reshard, StatesAreTheSameBitsAtAnyWorldAndStage) {
  const bool all = GetParam() == Precision::bf16;  // the split master has most to lose
  for (int world = 1; world <= 4; ++world) {
    for (int stage = 0; stage <= 3; ++stage) {
      RunOptions options;
      options.precision = GetParam();
      options.stage = stage;
      const TempFolder temp;
      const Bits saved =
          on_threads<Bits>(world, [&](Group& group) { return save_trained(group, options, temp.path()); })[0];
      for (int other_world = 1; other_world <= 4; ++other_world) {
        for (int other_stage = 0; other_stage <= 3; ++other_stage) {
          if (!all && (other_world != world % 4 + 1 || other_stage != 3 - stage)) continue;
          SCOPED_TRACE(fmt::format("world {} stage {} to world {} stage {}", world, stage, other_world, other_stage));
          options.stage = other_stage;
          const std::vector<Bits> loaded = loaded_on_threads(other_world, options, temp.path());
          for (const Bits& bits : loaded) {
            EXPECT_EQ(bits.state, saved.state);
            EXPECT_EQ(bits.weights, saved.weights);
            // At stage 0 every rank keeps everything: the replicas too are what was saved.
            if (stage == 0 && other_stage == 0) {
              EXPECT_EQ(bits.kept, saved.kept);
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, Reshard, ::testing::Values(Precision::fp32, Precision::bf16, Precision::fp16),
                         [](const auto& info) {
                           return info.param == Precision::fp32   ? "fp32"
                                  : info.param == Precision::bf16 ? "bf16"
                                                                  : "fp16";
                         });

struct Continued {
  std::vector<double> record;
  std::string state, weights;
};

Continued finish(Trainee& trainee, const RunOptions& options, const std::vector<int>& overflows) {
  Continued result;
  result.record = trainee.train(6, 12, options, overflows);
  result.state = state_bits(*trainee.engine, trainee.world);
  result.weights = trainee.weights();
  return result;
}

void expect_resume_changes_nothing(int world, const RunOptions& options) {
  // Overflows on both sides of the save: the loss scale falls, and rises again after two good steps.
  const std::vector<int> overflows = {2, 8};
  const auto config = [&] {
    Config config = config_of(options, world);
    config.fp16.loss_scale_window = 2;
    config.scheduler.kind = SchedulerKind::warmup;
    config.scheduler.params = {{"warmup_min_lr", 0.0}, {"warmup_max_lr", 3e-3}, {"warmup_num_steps", 9.0}};
    return config;
  };
  const auto never_stopped = on_threads<Continued>(world, [&](Group& group) {
    Trainee trainee(group, config());
    trainee.train(0, 6, options, overflows);
    return finish(trainee, options, overflows);
  });
  const TempFolder temp;
  on_threads<int>(world, [&](Group& group) {
    Trainee trainee(group, config());
    trainee.train(0, 6, options, overflows);
    save_checkpoint(*trainee.engine, group, {temp.path(), 6, 0, {{"samples", "42"}}});
    // Saving itself changes nothing either.
    EXPECT_EQ(RunResult::bits(finish(trainee, options, overflows).record),
              RunResult::bits(never_stopped[static_cast<size_t>(group.rank())].record));
    return 0;
  });
  const auto resumed = on_threads<Continued>(world, [&](Group& group) {
    Trainee trainee(group, config(), kOtherModel, kOtherSeed);
    trainee.train(0, 2, options);  // the engine was used before: nothing of that may stay
    const LoadedCheckpoint loaded = load_checkpoint(*trainee.engine, group, temp.path());
    EXPECT_EQ(loaded.step, 6);
    EXPECT_EQ(loaded.saved_world, world);
    EXPECT_EQ(loaded.extra.at("samples"), "42");
    return finish(trainee, options, overflows);
  });
  for (size_t rank = 0; rank < resumed.size(); ++rank) {
    EXPECT_EQ(RunResult::bits(resumed[rank].record), RunResult::bits(never_stopped[rank].record));
    EXPECT_EQ(resumed[rank].state, never_stopped[rank].state);
    EXPECT_EQ(resumed[rank].weights, never_stopped[rank].weights);
  }
}

TEST(Resume, ContinuesWithTheBitsOfTheRunThatNeverStopped) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const int world : {1, 2, 3}) {
        SCOPED_TRACE(fmt::format("precision {} stage {} world {}", static_cast<int>(precision), stage, world));
        RunOptions options;
        options.precision = precision;
        options.stage = stage;
        expect_resume_changes_nothing(world, options);
      }
    }
  }
}

TEST(Resume, WorksForEveryOptimizer) {
  for (const OptimizerRow& row : kOptimizers) {
    const OptimizerKind kind = row.kind;
    if (kind == OptimizerKind::adamw) continue;  // as all other tests have it
    SCOPED_TRACE(row.name);
    RunOptions options;
    options.optimizer = kind;
    options.stage = 3;
    options.precision = Precision::bf16;
    expect_resume_changes_nothing(2, options);
  }
}

// The same global batches on one rank, as micro-steps, and on two.
TEST(Resume, AtAnotherWorldTheNextLossesAgreeWithinFloats) {
  RunOptions options;
  options.stage = 2;
  options.dropout = 0;
  options.skip_units = false;
  const TempFolder temp;
  constexpr int kSteps = 4;
  struct Curve {
    std::vector<double> losses, norms;
  };
  const std::vector<Curve> two = on_threads<Curve>(2, [&](Group& group) {
    Trainee trainee(group, config_of(options, 2));
    trainee.train(0, 5, options);
    save_checkpoint(*trainee.engine, group, {temp.path(), 5, 0, {}});
    Curve curve;
    for (int step = 5; step < 5 + kSteps; ++step) {
      const at::Tensor loss = forward(*trainee.engine, trainee.model, batch_of(step, 0, group.rank()), {0.0});
      curve.losses.push_back(loss.item<double>());
      trainee.engine->backward(loss);
      curve.norms.push_back(trainee.engine->step().grad_norm);
    }
    return curve;
  });
  options.stage = 3;
  options.accumulation = 2;
  on_threads<int>(1, [&](Group& group) {
    Trainee trainee(group, config_of(options, 1), kOtherModel);
    load_checkpoint(*trainee.engine, group, temp.path());
    for (int step = 5; step < 5 + kSteps; ++step) {
      StepResult result;
      for (int data_rank = 0; data_rank < 2; ++data_rank) {
        const at::Tensor loss = forward(*trainee.engine, trainee.model, batch_of(step, 0, data_rank), {0.0});
        const auto at = static_cast<size_t>(step - 5);
        // One rank sums what two ranks averaged, in another order: roundings, which AdamW enlarges step by step.
        EXPECT_NEAR(loss.item<double>(), two[static_cast<size_t>(data_rank)].losses[at], 1e-4);
        trainee.engine->backward(loss);
        result = trainee.engine->step();
        if (data_rank == 1) {
          EXPECT_NEAR(result.grad_norm / two[0].norms[at], 1.0, 1e-3);
        }
      }
      EXPECT_TRUE(result.boundary);
    }
    return 0;
  });
}

TEST(Resume, AnOptimizerThatNeedsWhatWasNotSavedIsRefusedOnEveryRank) {
  RunOptions options = RunOptions();
  options.stage = 1;
  options.optimizer = OptimizerKind::sgd;  // without momentum it keeps no moments
  const TempFolder temp;
  on_threads<int>(2, [&](Group& group) {
    Trainee plain(group, config_of(options, 2));
    save_checkpoint(*plain.engine, group, {temp.path(), 0, 0, {}});
    RunOptions other = options;
    other.optimizer = OptimizerKind::adamw;
    Trainee adam(group, config_of(other, 2));
    EXPECT_THAT(message_of([&] { load_checkpoint(*adam.engine, group, temp.path()); }),
                HasSubstr("rank 0: it has no first_moment of wte"));
    load_checkpoint(*plain.engine, group, temp.path());
    return 0;
  });
}

}  // namespace
}  // namespace shoal::testing
