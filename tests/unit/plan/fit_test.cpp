#include "plan/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/plan/planned_models.h"

namespace shoal {
namespace {

using testing::config_in;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

StagePlan plan_of(size_t weights, size_t gradients, size_t states, size_t activations) {
  StagePlan plan;
  plan.memory.weights = weights;
  plan.memory.gradients = gradients;
  plan.memory.states = states;
  plan.activations = activations;
  return plan;
}

TEST(Fit, ToTheByte) {
  const StagePlan plan = plan_of(10, 20, 30, 40);
  EXPECT_TRUE(fits(plan, {.device = 100, .host = {}}));
  EXPECT_FALSE(fits(plan, {.device = 99, .host = {}}));
  EXPECT_TRUE(fits(plan, {.device = {}, .host = 300, .ranks_per_host = 3}));
  EXPECT_FALSE(fits(plan, {.device = {}, .host = 299, .ranks_per_host = 3}));
  EXPECT_TRUE(fits(plan, {}));
}

TEST(Fit, OffloadMovesStatesThenWeightsThenGradients) {
  const auto plans = offload_plans(plan_of(10, 20, 30, 40), 4);
  ASSERT_EQ(plans.size(), 3u);
  EXPECT_EQ(plans[0].device, 70u);
  EXPECT_EQ(plans[0].host, 120u);
  EXPECT_TRUE(plans[0].carried_out);
  EXPECT_EQ(plans[1].device, 60u);
  EXPECT_EQ(plans[1].host, 160u);
  EXPECT_TRUE(plans[1].carried_out);
  EXPECT_FALSE(plans[2].carried_out);
  EXPECT_EQ(plans[2].device, 40u);
  EXPECT_EQ(plans[2].host, 240u);
  EXPECT_TRUE(fits(plans[1], {.device = 60, .host = 160}));
  EXPECT_FALSE(fits(plans[1], {.device = 59, .host = 160}));
  EXPECT_FALSE(fits(plans[1], {.device = 60, .host = 159}));
}

constexpr size_t kGB = 1'000'000'000;

std::vector<std::string> advice_for(int64_t numel, int stage, int world, const Budget& budget) {
  return advice(subject_of_count(numel, Precision::bf16), config_in(Precision::bf16, stage), world, budget);
}

TEST(Advice, IsSilentWithoutAMemory) { EXPECT_THAT(advice_for(7 * kGB, 3, 8, {}), IsEmpty()); }

TEST(Advice, SaysThatTheStageFits) {
  EXPECT_THAT(advice_for(7 * kGB, 3, 8, {.device = 80 * kGB, .host = {}}),
              ElementsAre("Stage 3 fits: 11.41 GiB a rank, 74.51 GiB a GPU.",
                          "Gathered units, buffers and activations are not counted: give --model."));
}

TEST(Advice, NamesTheLowestStageThatFits) {
  EXPECT_THAT(advice_for(7 * kGB, 0, 8, {.device = 40 * kGB, .host = {}}),
              ElementsAre("Stage 0 does not fit: 91.27 GiB a rank, 37.25 GiB a GPU.",
                          "zero_optimization.stage=1 would fit: 34.23 GiB a rank."));
}

TEST(Advice, SaysThat70BDoNotFitOn8CardsOf24GBAndWhichOffloadWould) {
  EXPECT_THAT(
      advice_for(70 * kGB, 3, 8, {.device = 24 * kGB, .host = {}, .ranks_per_host = 8}),
      ElementsAre(
          "Stage 3 does not fit: 114.1 GiB a rank, 22.35 GiB a GPU.",
          "Stage 3 with offload_optimizer and offload_param would fit: 16.3 GiB a GPU, 782.3 GiB of host memory for 8 "
          "ranks.",
          "Without offload stage 3 fits on 64 ranks."));
}

// 238 GB of weights, gradients and states are less than the two memories together.
TEST(Advice, ProposesAShareWhenTheHostCannotHoldAllStates) {
  EXPECT_EQ(
      advice_for(17 * kGB, 3, 1, {.device = 140 * kGB, .host = 125 * kGB})[1],
      "Stage 3 with offload_optimizer, ratio 0.58, would fit: 129.8 GiB a GPU, 91.83 GiB of host memory for 1 rank "
      "of 116.4 GiB.");
  EXPECT_THAT(advice_for(17 * kGB, 3, 1, {.device = 100 * kGB, .host = 125 * kGB})[1],
              HasSubstr("would fit the GPU, not the host"));
}

TEST(Advice, SaysWhenTheHostIsTooSmallForOffload) {
  const auto lines = advice_for(70 * kGB, 3, 8, {.device = 24 * kGB, .host = 512 * kGB, .ranks_per_host = 8});
  EXPECT_THAT(lines[1], HasSubstr("would fit the GPU, not the host"));
}

TEST(Advice, RanksWithoutAGpuShareTheHost) {
  EXPECT_THAT(advice_for(7 * kGB, 3, 4, {.device = {}, .host = 50 * kGB, .ranks_per_host = 4}),
              ElementsAre("Stage 3 does not fit: 22.82 GiB a rank, 91.27 GiB a host with 4 ranks, which has 46.57 GiB.",
                          "Stage 3 with offload_optimizer.device=nvme would fit: 6.676 GiB a rank (and 65.19 GiB of "
                          "disk), 26.7 GiB a host with 4 ranks.",
                          "Stage 3 fits on 8 ranks, 4 a host."));
  EXPECT_THAT(advice_for(7 * kGB, 3, 4, {.device = {}, .host = 100 * kGB, .ranks_per_host = 4})[0],
              "Stage 3 fits: 22.82 GiB a rank, 91.27 GiB a host with 4 ranks, which has 93.13 GiB.");
}

TEST(Advice, WithoutAGpuTheDiskMayHelp) {
  const Budget budget{.device = {}, .host = 50 * kGB, .ranks_per_host = 4};
  EXPECT_THAT(advice_for(7 * kGB, 3, 4, {.device = {}, .host = 64 * kGB, .ranks_per_host = 4})[1],
              HasSubstr("Stage 3 with offload_optimizer.device=nvme would fit: "));
  Config config = config_in(Precision::bf16, 3);
  config.zero.offload_optimizer.tier = Tier::disk;
  const PlanSubject subject = subject_of_count(2 * kGB, Precision::bf16);
  EXPECT_TRUE(fits(plan_stages(subject, config, 4)[3], budget));
  config.zero.offload_optimizer.tier = Tier::host;
  const StagePlan on_host = plan_stages(subject, config, 4)[3];
  EXPECT_EQ(on_host.memory.states, 0u);
  EXPECT_EQ(on_host.total_on_host(), plan_stages(subject, config_in(Precision::bf16, 3), 4)[3].total());
  EXPECT_FALSE(fits(on_host, {.device = 80 * kGB, .host = kGB, .ranks_per_host = 4})) << "the host counts too";
}

TEST(Advice, PointsAtActivationsWhenTheyAreWhatIsTooMuch) {
  PlanSubject subject = subject_of_count(kGB, Precision::bf16);
  subject.activations = 60 * kGB;
  subject.lighter = {{"--recompute full", 30 * kGB}, {"--recompute full --batch 1", 2 * kGB}};
  const auto lines = advice(subject, config_in(Precision::bf16, 3), 2, {.device = 24 * kGB, .host = {}});
  EXPECT_EQ(lines[1], "Stage 3 with --recompute full --batch 1 would fit: 8.382 GiB a rank.");
}

TEST(Advice, TriesOffloadWithFewerActivationsBeforeItSaysThatNothingFits) {
  PlanSubject subject = subject_of_count(70 * kGB, Precision::bf16);
  subject.activations = 60 * kGB;
  const Budget budget{.device = 24 * kGB, .host = {}, .ranks_per_host = 8};
  const auto line = [&] { return advice(subject, config_in(Precision::bf16, 3), 8, budget).at(1); };
  EXPECT_THAT(line(), HasSubstr("Offload of every state would not fit either"));
  subject.lighter = {{"--recompute full", 50 * kGB}};
  EXPECT_THAT(line(), HasSubstr("Offload of every state would not fit either"));
  subject.lighter = {{"--recompute full", 50 * kGB}, {"--recompute full --batch 1", 20 * kGB}};
  EXPECT_THAT(
      line(),
      HasSubstr("Stage 3 with offload_optimizer, offload_param and gradients on the host (not in this version) and "
                "--recompute full --batch 1 would fit: 18.63 GiB a GPU"));
  subject.lighter.back().activations = kGB;
  EXPECT_THAT(line(), HasSubstr("Stage 3 with offload_optimizer and offload_param and --recompute full --batch 1"));
}

}  // namespace
}  // namespace shoal
