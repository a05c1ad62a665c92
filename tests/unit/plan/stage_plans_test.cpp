#include "plan/stage_plans.h"

#include <gtest/gtest.h>

#include "layout/flat_layout.h"
#include "plan/from_config.h"
#include "plan/memory.h"
#include "unit/plan/planned_models.h"

namespace shoal {
namespace {

using testing::config_in;
using testing::stack;

TEST(StagePlans, AreWhatTheEnginesOwnFunctionsSayForEachStage) {
  for (const int world : {1, 2, 3, 4}) {
    const PlanSubject subject = stack(3, 700, DType::bf16);
    const Config config = config_in(Precision::bf16);
    const auto plans = plan_stages(subject, config, world);
    for (int stage = 0; stage < kStages; ++stage) {
      const Config staged = config_in(Precision::bf16, stage);
      const ModelLayout layout = lay_out(subject.units, layout_options(staged, world));
      EXPECT_EQ(plans[static_cast<size_t>(stage)].stage, stage);
      EXPECT_EQ(plans[static_cast<size_t>(stage)].memory, plan_memory(layout, memory_options(staged)));
    }
  }
}

TEST(StagePlans, CountActivationsAtEveryStage) {
  PlanSubject subject = stack(1, 700, DType::f32);
  subject.activations = 1000;
  for (const StagePlan& plan : plan_stages(subject, config_in(Precision::fp32), 2)) {
    EXPECT_EQ(plan.total(), plan.memory.total() + 1000);
  }
}

TEST(StagePlans, ACountOfParametersTakes14BytesInBf16And16InOthers) {
  const int64_t numel = 128 * 1000;
  for (const auto& [precision, nbytes] :
       {std::pair{Precision::bf16, 14}, std::pair{Precision::fp16, 16}, std::pair{Precision::fp32, 16}}) {
    const auto plans = plan_stages(subject_of_count(numel, precision), config_in(precision), 1);
    for (const StagePlan& plan : plans) {
      EXPECT_EQ(plan.memory.model_states(), static_cast<size_t>(numel * nbytes)) << plan.stage;
      EXPECT_EQ(plan.total(), plan.memory.model_states());
    }
  }
}

TEST(StagePlans, ACountIsShardedHoweverSmallItIs) {
  const auto plans = plan_stages(subject_of_count(1024, Precision::bf16), config_in(Precision::bf16), 8);
  EXPECT_EQ(plans[3].memory.model_states(), 1024u / 8 * 14);
}

TEST(StagePlans, ACountOnDiskLeavesInTheHostWhatMayStayThere) {
  const int64_t numel = 4'000'000;  // 2'000'000 a rank, of two bytes
  Config config = config_in(Precision::bf16, 3);
  config.zero.offload_param.tier = Tier::disk;
  for (const auto& [max_in_cpu, in_host] :
       {std::pair<int64_t, size_t>{0, 0}, {1'500'000, 3'000'000}, {2'000'000, 4'000'000}, {9'000'000'000, 4'000'000}}) {
    config.zero.offload_param.max_in_cpu = max_in_cpu;
    const MemoryPlan plan = plan_stages(subject_of_count(numel, Precision::bf16), config, 2)[3].memory;
    EXPECT_EQ(plan.host_weights, in_host) << max_in_cpu;
    EXPECT_EQ(plan.disk_weights, in_pages(4'000'000 - in_host)) << max_in_cpu;
    EXPECT_EQ(plan.disk_buffers, 0u) << "units are not known, nor the buffers that they pass through";
    EXPECT_EQ(plan.weights, 0u);
  }
  const auto plans = plan_stages(subject_of_count(numel, Precision::bf16), config, 2);
  EXPECT_EQ(plans[2].memory.weights, 8'000'000u);
  EXPECT_EQ(plans[2].memory.host_weights + plans[2].memory.disk_weights, 0u);
}

TEST(StagePlans, KnowTheNumberOfParameters) {
  EXPECT_EQ(stack(3, 10, DType::f32).numel(), 3 * 210);
  EXPECT_EQ(subject_of_count(7'000'000'000, Precision::fp32).numel(), 7'000'000'000);
}

TEST(ClassicArithmetic, GivesThePapersNumbersFor7BOn8Ranks) {
  EXPECT_EQ(classic_nbytes(7'000'000'000, 0, 8), 112e9);
  EXPECT_EQ(classic_nbytes(7'000'000'000, 1, 8), 38.5e9);
  EXPECT_EQ(classic_nbytes(7'000'000'000, 2, 8), 26.25e9);
  EXPECT_EQ(classic_nbytes(7'000'000'000, 3, 8), 14e9);
  // Of frozen parameters the weight alone.
  EXPECT_EQ(classic_nbytes(1'000'000, 0, 8, 7'000'000'000), 14e9 + 16e6);
  EXPECT_EQ(classic_nbytes(1'000'000, 3, 8, 7'000'000'000), 1.75e9 + 2e6);
}

}  // namespace
}  // namespace shoal
