#include "layout/stage.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/check.h"

namespace shoal {
namespace {

// Of two ranks.
FlatLayout bf16_flat(bool persistent = false) {
  FlatLayout flat;
  flat.dtype = DType::bf16;
  flat.numel = 256;
  flat.shard_numel = flat.rank_numel = 128;
  flat.persistent = persistent;
  return flat;
}

TEST(Stage, EachStageShardsOneThingMore) {
  EXPECT_EQ(Stage(0).row.states, Over::nobody);
  EXPECT_EQ(Stage(1).row.states, Over::world);
  EXPECT_EQ(Stage(1).row.gradients, Over::nobody);
  EXPECT_EQ(Stage(2).row.gradients, Over::world);
  EXPECT_EQ(Stage(2).row.weights, Over::nobody);
  EXPECT_EQ(Stage(3).row.weights, Over::world);
  EXPECT_THROW(Stage(4), BrokenPromise);
}

TEST(Stage, PersistentFlatsKeepWholeWeightsAtStage3) {
  EXPECT_TRUE(is_gathered(bf16_flat(), 3));
  EXPECT_FALSE(is_gathered(bf16_flat(true), 3));
  EXPECT_TRUE(states_are_cut(bf16_flat(true), 1));
  EXPECT_FALSE(states_are_cut(bf16_flat(), 0));
  EXPECT_EQ(row_of(bf16_flat(true), 3).gradients, Over::world);
}

TEST(Stage, WaysEndWhereTheTableSaysAndSumsAreAlwaysParts) {
  const auto ways = [](int stage) {
    const Ways ways = ways_of(bf16_flat(), stage);
    return std::vector{ways.weights, ways.summed, ways.updated, ways.published};
  };
  constexpr Over kWhole = Over::nobody, kPart = Over::world;
  EXPECT_EQ(ways(0), (std::vector{kWhole, kPart, kWhole, kWhole}));
  EXPECT_EQ(ways(1), (std::vector{kWhole, kPart, kPart, kWhole}));
  EXPECT_EQ(ways(2), (std::vector{kWhole, kPart, kPart, kWhole}));
  EXPECT_EQ(ways(3), (std::vector{kPart, kPart, kPart, kPart}));
}

TEST(Stage, GradientsStayInTheModelDtypeAtAccumulationOne) {
  for (int stage = 0; stage <= 3; ++stage) {
    const GradientRule rule = gradient_rule(bf16_flat(), {.stage = stage});
    EXPECT_EQ(rule.kept, DType::bf16);
    EXPECT_EQ(rule.wire, DType::bf16);
    EXPECT_TRUE(rule.every_micro_step);
    EXPECT_EQ(rule.kept_whole, stage < 2);
    EXPECT_EQ(rule.through_slot, stage >= 2);
  }
}

TEST(Stage, AccumulationIsInFp32AndStages0And1ReduceOnce) {
  for (int stage = 0; stage <= 3; ++stage) {
    const GradientRule rule = gradient_rule(bf16_flat(), {.stage = stage, .accumulation_steps = 4});
    EXPECT_EQ(rule.kept, DType::f32);
    EXPECT_EQ(rule.every_micro_step, stage >= 2);
    EXPECT_EQ(rule.wire, stage >= 2 ? DType::bf16 : DType::f32);
    EXPECT_EQ(rule.rounding, rule.wire);
  }
}

TEST(Stage, ReproducibleMakesEveryStageReduceEachMicroStepFromTheSameDtype) {
  for (int stage = 0; stage <= 3; ++stage) {
    const GradientRule rule =
        gradient_rule(bf16_flat(), {.stage = stage, .accumulation_steps = 4, .reproducible = true});
    EXPECT_TRUE(rule.every_micro_step);
    EXPECT_TRUE(rule.through_slot);
    EXPECT_EQ(rule.wire, DType::bf16);
    EXPECT_EQ(rule.kept, DType::f32);
  }
}

TEST(Stage, InAWorldOfOneALeafThatIsAllOfAStepIsTakenWhereItIsKept) {
  FlatLayout flat = bf16_flat();
  flat.shard_numel = flat.rank_numel = flat.numel;
  for (int stage = 0; stage <= 3; ++stage) {
    const GradientRule rule = gradient_rule(flat, {.stage = stage});
    EXPECT_TRUE(rule.kept_whole);
    EXPECT_FALSE(rule.through_slot);
    EXPECT_EQ(gradient_rule(flat, {.stage = stage, .accumulation_steps = 4}).every_micro_step, stage >= 2);
  }
}

// See [Note: the fold].
TEST(Stage, WhatTheFoldReadsDependsNeitherOnTheWorldNorOnTheAccumulation) {
  FlatLayout alone = bf16_flat();
  alone.shard_numel = alone.rank_numel = alone.numel;
  for (int stage = 0; stage <= 3; ++stage) {
    for (const std::optional<DType> wire : {std::optional<DType>(), std::optional(DType::f32)}) {
      for (const std::optional<DType> kept : {std::optional<DType>(), std::optional(DType::f16)}) {
        const GradientOptions once = {.stage = stage, .communication_dtype = wire, .accumulation_dtype = kept};
        GradientOptions often = once;
        often.accumulation_steps = 6;
        often.reproducible = true;
        const GradientRule rule = gradient_rule(bf16_flat(), once);
        for (const GradientRule& other : {gradient_rule(bf16_flat(), often), gradient_rule(alone, often)}) {
          EXPECT_EQ(other.wire, rule.wire);
          EXPECT_EQ(other.rounding, rule.rounding);
          EXPECT_TRUE(other.every_micro_step);
          EXPECT_TRUE(other.through_slot) << "a leaf of two deposits is rounded before it is folded";
          EXPECT_EQ(other.kept, DType::f32);
        }
        EXPECT_EQ(rule.kept, rule.rounding);
      }
    }
  }
}

TEST(Stage, ConfiguredDtypesAreHonoured) {
  const GradientRule rule =
      gradient_rule(bf16_flat(), {.stage = 1, .communication_dtype = DType::f32, .accumulation_dtype = DType::bf16});
  EXPECT_EQ(rule.wire, DType::f32);
  EXPECT_EQ(rule.kept, DType::bf16);
  EXPECT_TRUE(rule.through_slot);
}

}  // namespace
}  // namespace shoal
