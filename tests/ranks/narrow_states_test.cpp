// Moments and masters of 16 bits: the same bits at every stage and on every tier, the bytes that the plan says, and
// checkpoints that bring them back at any number of ranks, with a word where something is rounded.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shoal/checkpoint.h"
#include "temp_folder.h"
#include "training/exactness.h"
#include "training/state_bits.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;

struct Narrow {
  const char* name;
  Precision precision;
  bool bf16_states, narrow_masters;

  RunOptions run(int stage = 0) const {
    RunOptions options;
    options.stage = stage;
    options.precision = precision;
    options.bf16_states = bf16_states;
    options.narrow_masters = narrow_masters;
    options.lr = 1e-2;  // updates that are not all rounded away
    options.steps = 6;
    options.overflow_step = 3;
    return options;
  }
};

class NarrowStates : public ::testing::TestWithParam<Narrow> {};

TEST_P(NarrowStates, EveryStageAndTierGivesTheSameBits) {
  const TempFolder folder;
  for (const int64_t accumulation : {1, 3}) {
    RunOptions options = GetParam().run();
    options.accumulation = accumulation;
    const std::vector<RunResult> expected = train_on_threads(2, options);
    for (int stage = 0; stage <= 3; ++stage) {
      for (const Tier tier : {Tier::device, Tier::host, Tier::disk}) {
        if (tier != Tier::device && accumulation > 1) continue;
        options.stage = stage;
        options.offload = {.tier = tier, .nvme_path = folder.path(), .buffer_count = 3, .ratio = 0.7};
        options.speculative = tier == Tier::host;
        const std::vector<RunResult> got = train_on_threads(2, options);
        for (size_t rank = 0; rank < got.size(); ++rank) {
          EXPECT_TRUE(got[rank] == expected[rank])
              << fmt::format("stage {} tier {} accumulation {} rank {}", stage, name_of(tier), accumulation, rank);
          const MemoryPlan &held = got[rank].memory.held, &planned = got[rank].memory.planned;
          EXPECT_EQ(held.weights, planned.weights);
          EXPECT_EQ(held.gradients, planned.gradients);
          EXPECT_EQ(held.states, planned.states);
          EXPECT_EQ(held.host_states, planned.host_states);
          EXPECT_EQ(held.disk_states, planned.disk_states);
        }
      }
    }
  }
}

TEST_P(NarrowStates, EveryOptimizerGivesTheSameBitsAtEveryStage) {
  for (const OptimizerRow& row : kOptimizers) {
    const OptimizerKind kind = row.kind;
    if (kind == OptimizerKind::adamw) continue;  // as all other tests have it
    RunOptions options = GetParam().run();
    options.optimizer = kind;
    options.momentum = row.takes("momentum") ? 0.9 : 0;
    const RunResult expected = train_on_threads(3, options)[0];
    for (const int stage : {1, 3}) {
      options.stage = stage;
      EXPECT_TRUE(train_on_threads(3, options)[0] == expected) << "optimizer " << row.name << " stage " << stage;
    }
  }
}

struct Saved {
  std::string state, weights;
  std::vector<double> record;  // of steps after the save
};

Saved after_steps(Trainee& trainee, const RunOptions& options) {
  Saved saved{state_bits(*trainee.engine, trainee.world), trainee.weights(), {}};
  saved.record = trainee.train(3, 6, options);
  return saved;
}

std::vector<Saved> save_on_threads(int world, const RunOptions& options, const std::string& folder) {
  return on_threads<Saved>(world, [&](Group& group) {
    Trainee trainee(group, config_of(options, world));
    trainee.train(0, 3, options);
    save_checkpoint(*trainee.engine, group, {folder, 3, 0, {}});
    return after_steps(trainee, options);
  });
}

std::vector<Saved> load_on_threads(int world, const RunOptions& options, const std::string& folder) {
  return on_threads<Saved>(world, [&](Group& group) {
    Trainee trainee(group, config_of(options, world), /*model_seed=*/2, /*engine_seed=*/77);
    load_checkpoint(*trainee.engine, group, folder);
    return after_steps(trainee, options);
  });
}

TEST_P(NarrowStates, ComeBackFromACheckpointAtAnyWorldAndStage) {
  const TempFolder folder;
  const RunOptions options = GetParam().run(2);
  const std::vector<Saved> saved = save_on_threads(2, options, folder.path());
  ::testing::internal::CaptureStderr();
  for (const int world : {1, 2, 3}) {
    for (const int stage : {0, 3}) {
      const std::vector<Saved> loaded = load_on_threads(world, GetParam().run(stage), folder.path());
      for (size_t rank = 0; rank < loaded.size(); ++rank) {
        EXPECT_EQ(loaded[rank].state, saved[0].state) << world << " ranks, stage " << stage;
        EXPECT_EQ(loaded[rank].weights, saved[0].weights) << world << " ranks, stage " << stage;
        if (world != 2) continue;
        EXPECT_EQ(RunResult::bits(loaded[rank].record), RunResult::bits(saved[rank].record)) << "stage " << stage;
      }
    }
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

INSTANTIATE_TEST_SUITE_P(Kinds, NarrowStates,
                         ::testing::Values(Narrow{"bf16_states", Precision::bf16, true, false},
                                           Narrow{"bf16_masters", Precision::bf16, false, true},
                                           Narrow{"bf16_both", Precision::bf16, true, true},
                                           Narrow{"fp16_masters", Precision::fp16, false, true}),
                         [](const auto& info) { return info.param.name; });

// Wide states are rounded with a word; narrow ones become wide without, since nothing is lost.
TEST(NarrowStatesCheckpoint, StatesThatAreRoundedAreNamed) {
  const TempFolder wide, narrow;
  const Narrow exact{"", Precision::bf16, false, false}, both{"", Precision::bf16, true, true};
  save_on_threads(2, exact.run(1), wide.path());
  const std::string saved_narrow = save_on_threads(2, both.run(1), narrow.path())[0].state;
  ::testing::internal::CaptureStderr();
  load_on_threads(2, both.run(3), wide.path());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("this run keeps states in 16 bits that were saved in another dtype: rounded moments from fp32 "
                        "to bf16 and weights from fp32 to bf16."));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(load_on_threads(2, exact.run(3), narrow.path())[0].state, saved_narrow);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

// Bytes a parameter of AdamW in bf16, for a model large enough that padding does not count: moments 8 or 4, master 2
// or none. Gradients take 4 with accumulation, as a sum that waits for more is fp32.
TEST(NarrowStatesMemory, TakesTheBytesThatItPromises) {
  const auto bytes = [](bool states, bool masters) {
    RunOptions options = Narrow{"", Precision::bf16, states, masters}.run();
    options.steps = 1;
    options.accumulation = 2;
    const MemoryPlan held = train_on_threads(1, options)[0].memory.held;
    return std::pair(held.states, held.gradients);
  };
  const auto [whole_states, whole_gradients] = bytes(false, false);
  EXPECT_EQ(bytes(true, false).first * 10, whole_states * 6);
  EXPECT_EQ(bytes(false, true).first * 10, whole_states * 8);
  EXPECT_EQ(bytes(true, true).first * 10, whole_states * 4);
  EXPECT_EQ(bytes(true, true).second, whole_gradients);
}

// What these tests compare is not what exact states give.
TEST(NarrowStatesCheck, OtherBitsThanExactStates) {
  const RunResult exact = train_on_threads(1, Narrow{"", Precision::bf16, false, false}.run())[0];
  EXPECT_FALSE(train_on_threads(1, Narrow{"", Precision::bf16, true, false}.run())[0] == exact);
  EXPECT_FALSE(train_on_threads(1, Narrow{"", Precision::bf16, false, true}.run())[0] == exact);
}

}  // namespace
}  // namespace shoal::testing
