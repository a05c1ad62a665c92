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

StagePlan stage_plan(size_t weights, size_t gradients, size_t states, size_t activations) {
  StagePlan plan;
  plan.memory.weights = weights;
  plan.memory.gradients = gradients;
  plan.memory.states = states;
  plan.activations = activations;
  return plan;
}

TEST(Fit, ToTheByte) {
  const StagePlan plan = stage_plan(10, 20, 30, 40);
  EXPECT_TRUE(fits(plan, {.device = 100, .host = {}}));
  EXPECT_FALSE(fits(plan, {.device = 99, .host = {}}));
  EXPECT_TRUE(fits(plan, {.device = {}, .host = 300, .ranks_per_host = 3}));
  EXPECT_FALSE(fits(plan, {.device = {}, .host = 299, .ranks_per_host = 3}));
  EXPECT_TRUE(fits(plan, {}));
}

TEST(Fit, WhatARunKeepsFreeIsNotCounted) {
  const Budget budget = budget_of({.gpu = 1000, .host = 2000, .ranks_per_host = 2});
  EXPECT_EQ(budget.device, 970u);
  EXPECT_EQ(budget.host, 1800u);
  EXPECT_EQ(budget.ranks_per_host, 2);
  EXPECT_FALSE(budget_of({}).given());
  EXPECT_TRUE(fits(stage_plan(970, 0, 0, 0), budget));
  EXPECT_FALSE(fits(stage_plan(971, 0, 0, 0), budget));
}

constexpr size_t kGB = 1'000'000'000, kGiB = size_t{1} << 30;

std::vector<std::string> advice(const PlanSubject& subject, const Config& config, int world, const Budget& budget) {
  return advise(subject, config, world, budget).lines;
}
// What to put on the command line for it; "none" where nothing is known to fit.
std::string words(const PlanSubject& subject, int stage, const Budget& budget, int world = 1) {
  return advise(subject, config_in(Precision::bf16, stage), world, budget).words.value_or("none");
}

std::vector<std::string> advice_for(int64_t numel, int stage, int world, const Budget& budget) {
  return advice(subject_of_count(numel, Precision::bf16), config_in(Precision::bf16, stage), world, budget);
}

// A parameter in bf16 has 2 bytes of weight, 2 of gradient and 10 of states; the ring takes 1 GiB of the GPU. Weights
// leave it where nothing else helps, and no more of them than must.
TEST(Fit, OffloadMovesStatesThenGradientsThenWeights) {
  const PlanSubject subject = subject_of_count(10 * kGB, Precision::bf16);
  const auto plans_in = [&](size_t device) {
    return offload_plans(subject, config_in(Precision::bf16, 3), 1,
                         {.device = device, .host = {}, .ranks_per_host = 2});
  };
  const auto half = plans_in(90 * kGB + kGiB);
  ASSERT_EQ(half.size(), 2u);
  EXPECT_EQ(half[0].settings, "offload_optimizer, ratio 0.50");
  EXPECT_LE(half[0].device, 90 * kGB + kGiB);
  EXPECT_NEAR(static_cast<double>(half[0].host), 2 * 50e9, 1e9);
  const std::string gradients = "offload_optimizer and shoal.offload_gradients on with shoal.offload_update cpu";
  EXPECT_EQ(half[1].settings, gradients);
  EXPECT_EQ(half[1].device, 20 * kGB) << "weights";
  EXPECT_EQ(half[1].host, 2 * 120 * kGB) << "gradients and states of two ranks";
  const auto little = plans_in(25 * kGB);
  ASSERT_EQ(little.size(), 2u);
  EXPECT_EQ(little[0].settings, gradients);
  EXPECT_EQ(little[1].settings, "offload_optimizer and offload_param, ratio 0.81");
  EXPECT_LE(little[1].device, 25 * kGB);
  const auto least = plans_in(5 * kGB);
  ASSERT_EQ(least.size(), 1u);
  EXPECT_EQ(least[0].settings, gradients + " and offload_param, ratio 0.75");
  EXPECT_EQ(least[0].device, 5 * kGB);
  EXPECT_EQ(least[0].host, 2 * 135 * kGB);
}

TEST(Advice, IsSilentWithoutAMemory) { EXPECT_THAT(advice_for(7 * kGB, 3, 8, {}), IsEmpty()); }

TEST(Advice, SaysThatTheStageFits) {
  EXPECT_THAT(advice_for(7 * kGB, 3, 8, {.device = 80 * kGB, .host = {}}),
              ElementsAre("Stage 3 fits: 11.41 GiB a rank, 74.51 GiB a GPU.",
                          "Gathered units, buffers and activations are not counted: give --model."));
}

// 991 of 1000 bytes of a GPU are too many: a run would not get them.
TEST(Advice, SaysWhatMayBeTakenOfWhatThereIs) {
  const PlanSubject subject = subject_of_count(7 * kGB, Precision::bf16);
  const Config config = config_in(Precision::bf16, 3);
  EXPECT_EQ(advice(subject, config, 1, budget_of({.gpu = 98 * kGB, .host = {}}))[0],
            "Stage 3 does not fit: 91.27 GiB a rank; 88.53 GiB of a GPU's 91.27 GiB may be taken.");
  EXPECT_FALSE(chosen_fits(subject, config, 1, budget_of({.gpu = 100 * kGB, .host = {}})));
  EXPECT_TRUE(chosen_fits(subject, config, 1, budget_of({.gpu = 102 * kGB, .host = {}})));
  EXPECT_TRUE(chosen_fits(subject, config, 1, {})) << "nothing is known that it would not fit";
  EXPECT_EQ(advice(subject, config, 1, budget_of({.gpu = 120 * kGB, .host = 50 * kGB}))[0],
            "Stage 3 fits: 91.27 GiB a rank; 108.4 GiB of a GPU's 111.8 GiB and 41.91 GiB of a host's 46.57 GiB may be "
            "taken.");
  EXPECT_EQ(advice(subject, config, 1, budget_of({.gpu = {}, .host = 120 * kGB}))[0],
            "Stage 3 fits: 91.27 GiB a rank, 91.27 GiB a host with 1 rank; 100.6 GiB of a host's 111.8 GiB may be "
            "taken.");
}

TEST(Advice, SaysThatTheHostIsWhatIsTooSmall) {
  Config config = config_in(Precision::bf16, 3);
  config.zero.offload_optimizer.tier = Tier::host;
  const PlanSubject subject = subject_of_count(7 * kGB, Precision::bf16);
  EXPECT_EQ(
      advice(subject, config, 1, {.device = 80 * kGB, .host = 16 * kGB})[0],
      "Stage 3 does not fit: 27.08 GiB a rank and 65.19 GiB of host memory for 1 rank, 74.51 GiB a GPU and 14.9 GiB "
      "a host.");
}

TEST(Advice, NamesTheLowestStageThatFits) {
  EXPECT_THAT(advice_for(7 * kGB, 0, 8, {.device = 40 * kGB, .host = {}}),
              ElementsAre("Stage 0 does not fit: 91.27 GiB a rank, 37.25 GiB a GPU.",
                          "zero_optimization.stage=1 would fit: 34.23 GiB a rank."));
}

TEST(Advice, SaysThat70BDoNotFitOn8CardsOf24GBAndWhichOffloadWould) {
  EXPECT_THAT(advice_for(70 * kGB, 3, 8, {.device = 24 * kGB, .host = {}, .ranks_per_host = 8}),
              ElementsAre("Stage 3 does not fit: 114.1 GiB a rank, 22.35 GiB a GPU.",
                          "Stage 3 with offload_optimizer and shoal.offload_gradients on with shoal.offload_update cpu "
                          "would fit: 16.3 GiB a GPU, 782.3 GiB of "
                          "host memory for 8 ranks.",
                          "Without offload stage 3 fits on 64 ranks."));
}

// A bus in every pass costs more than to compute activations again.
TEST(Advice, MovesStatesWithFewerActivationsBeforeGradientsAndWeights) {
  PlanSubject subject = subject_of_count(10 * kGB, Precision::bf16);
  subject.activations = 60 * kGB;
  subject.lighter = {{"--recompute full", 10 * kGB}};
  const auto lines = advice(subject, config_in(Precision::bf16, 3), 1, {.device = 70 * kGB, .host = 400 * kGB});
  EXPECT_THAT(lines.at(1), HasSubstr("Stage 3 with offload_optimizer, ratio 0.82 and --recompute full would fit"));
  const Budget budget{.device = 70 * kGB, .host = 400 * kGB};
  EXPECT_EQ(words(subject, 3, budget),
            "--set zero_optimization.stage=3 --set zero_optimization.offload_optimizer.device=cpu --set "
            "zero_optimization.offload_optimizer.ratio=0.82 --recompute full");
  subject.activations = 45 * kGB;  // gradients would do, with all of them
  EXPECT_THAT(advice(subject, config_in(Precision::bf16, 3), 1, {.device = 70 * kGB, .host = 400 * kGB}).at(1),
              HasSubstr("--recompute full would fit"));
  subject.lighter = {{"--smaller", 10 * kGB, 0, /*smaller_batch=*/true}};
  EXPECT_THAT(advice(subject, config_in(Precision::bf16, 3), 1, {.device = 70 * kGB, .host = 400 * kGB}).at(1),
              HasSubstr("shoal.offload_update cpu would fit"))
      << "a micro-batch is the last to shrink";
}

TEST(Advice, ItsWordsAreOfTheFirstThatFits) {
  const PlanSubject subject = subject_of_count(7 * kGB, Precision::bf16);
  EXPECT_EQ(words(subject, 3, {}), "") << "nothing to fit into";
  EXPECT_EQ(words(subject, 3, {.device = 100 * kGB, .host = {}}), "");
  EXPECT_EQ(words(subject, 0, {.device = 40 * kGB, .host = {}}, 8), "--set zero_optimization.stage=1");
  EXPECT_EQ(words(subject_of_count(100 * kGB, Precision::bf16), 3, {.device = 30 * kGB, .host = 20 * kGB}), "none");
  EXPECT_EQ(words(subject, 3, {.device = {}, .host = 50 * kGB, .ranks_per_host = 4}, 4),
            "--set zero_optimization.stage=3 --set zero_optimization.offload_optimizer.device=nvme --set "
            "zero_optimization.offload_optimizer.nvme_path=<folder>");
  PlanSubject heavy = subject_of_count(kGB, Precision::bf16);
  heavy.activations = 60 * kGB;
  heavy.lighter = {{"--recompute full", 9 * kGB}};
  EXPECT_EQ(words(heavy, 2, {.device = 24 * kGB, .host = {}}), "--set zero_optimization.stage=3 --recompute full");
  heavy = subject_of_count(10 * kGB, Precision::bf16);
  heavy.activations = 45 * kGB;
  heavy.lighter = {{"--smaller 1", kGB, 0, /*smaller_batch=*/true}};
  EXPECT_THAT(words(heavy, 3, {.device = 150 * kGB, .host = 400 * kGB}), HasSubstr("offload_optimizer.device=cpu"))
      << "a micro-batch is the last to shrink";
  EXPECT_EQ(words(heavy, 3, {.device = 150 * kGB, .host = kGB}), "--set zero_optimization.stage=3 --smaller 1");
}

// Weights come from a disk in every pass: first fewer activations, with states there.
TEST(Advice, PutsWeightsOnDiskLast) {
  PlanSubject subject = subject_of_count(10 * kGB, Precision::bf16);
  subject.activations = 60 * kGB;
  subject.lighter = {{"--recompute full", 10 * kGB}};
  const Budget budget{.device = 70 * kGB, .host = 8 * kGB};
  const auto lines = advice(subject, config_in(Precision::bf16, 3), 1, budget);
  EXPECT_THAT(lines.at(2), HasSubstr("Stage 3 with offload_optimizer to nvme"));
  EXPECT_THAT(lines.at(2), HasSubstr("and --recompute full would fit"));
  EXPECT_EQ(lines.at(2).find("offload_param"), std::string::npos);
}

TEST(Advice, SaysWhereADiskWouldNotHelpEither) {
  const auto lines = advice_for(100 * kGB, 3, 1, {.device = 30 * kGB, .host = 20 * kGB});
  EXPECT_THAT(lines, ::testing::Contains("States and weights on disk would not fit either: gradients, buffers "
                                         "and activations remain."));
}

// 238 GB of weights, gradients and states are less than the two memories together.
TEST(Advice, ProposesAShareWhenTheHostCannotHoldAllStates) {
  EXPECT_EQ(
      advice_for(17 * kGB, 3, 1, {.device = 140 * kGB, .host = 125 * kGB})[1],
      "Stage 3 with offload_optimizer, ratio 0.59 would fit: 129.2 GiB a GPU, 93.41 GiB of host memory for 1 rank "
      "of 116.4 GiB.");
  EXPECT_THAT(advice_for(17 * kGB, 3, 1, {.device = 100 * kGB, .host = 125 * kGB})[1],
              HasSubstr("would fit the GPU, not the host"));
  // What the config moves already is not counted twice.
  Config moved = config_in(Precision::bf16, 3);
  moved.zero.offload_optimizer = {.tier = Tier::host, .ratio = 0.1};
  EXPECT_EQ(advice(subject_of_count(17 * kGB, Precision::bf16), moved, 1, {.device = 140 * kGB, .host = 125 * kGB})[1],
            advice_for(17 * kGB, 3, 1, {.device = 140 * kGB, .host = 125 * kGB})[1]);
}

TEST(Advice, SaysWhenTheHostIsTooSmallForOffload) {
  const auto lines = advice_for(70 * kGB, 3, 8, {.device = 24 * kGB, .host = 512 * kGB, .ranks_per_host = 8});
  EXPECT_THAT(lines[1], HasSubstr("would fit the GPU, not the host"));
}

// 21 billion parameters take 14 bytes each, 294 GB; GPU and host have 220.
TEST(Advice, ProposesTheDiskForWhatNeitherGpuNorHostCanHold) {
  const auto lines = advice_for(21 * kGB, 3, 1, {.device = 120 * kGB, .host = 100 * kGB});
  EXPECT_THAT(lines[1], HasSubstr("would fit the GPU, not the host"));
  EXPECT_EQ(
      lines[2],
      "Stage 3 with offload_optimizer to nvme, ratio 0.84, with shoal.offload_disk_ratio 0.37 would fit: 110.5 GiB a "
      "GPU, 92.08 GiB of host memory and 72.36 GiB of disk for 1 rank.");
  EXPECT_THAT(advice_for(21 * kGB, 3, 1, {.device = 120 * kGB, .host = {}})[1], HasSubstr("would fit: "));
}

// A config that names a disk for weights is not advised to use it before lighter activations were tried.
TEST(Advice, ThePlansWithoutADiskHaveNone) {
  Config config = config_in(Precision::bf16, 3);
  config.zero.offload_param.nvme_path = "/local";
  const PlanSubject subject = subject_of_count(7 * kGB, Precision::bf16);
  for (const OffloadPlan& plan : offload_plans(subject, config, 1, {.device = 60 * kGB, .host = 200 * kGB})) {
    EXPECT_EQ(plan.settings.find("nvme"), std::string::npos) << plan.settings;
  }
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

TEST(Advice, WithoutAGpuTheDiskHelpsWithFewerActivationsOrWithWeightsOnItToo) {
  PlanSubject subject = subject_of_count(2 * kGB, Precision::bf16);
  subject.activations = 60 * kGB;
  subject.lighter = {{"--recompute full", 30 * kGB}, {"--recompute full --batch 1", 2 * kGB}};
  Budget budget{.device = {}, .host = 12 * kGB, .ranks_per_host = 1};
  const auto line = [&] { return advice(subject, config_in(Precision::bf16, 3), 1, budget)[1]; };
  EXPECT_THAT(line(),
              HasSubstr("Stage 3 with offload_optimizer.device=nvme and --recompute full --batch 1 would fit: "));
  budget.host = 8 * kGB;
  EXPECT_THAT(line(), HasSubstr("offload_optimizer.device=nvme and offload_param.device=nvme with max_in_cpu=0 and "
                                "--recompute full --batch 1 would fit: "));
  budget.host = 3 * kGB;
  EXPECT_THAT(line(), HasSubstr("States and weights on disk would not fit either"));
}

TEST(Advice, WithoutAGpuTheDiskIsNotProposedForWorkThatFitsWithoutIt) {
  PlanSubject subject = subject_of_count(kGB, Precision::bf16);
  subject.activations = 200 * kGB;
  subject.lighter = {{"--recompute full", 2 * kGB}};
  const auto lines = advice(subject, config_in(Precision::bf16, 3), 1, {.device = {}, .host = 40 * kGB});
  EXPECT_THAT(lines[1], HasSubstr("Stage 3 with --recompute full would fit: "));
  EXPECT_EQ(lines.size(), 2u) << lines.back();
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

TEST(Advice, DoesNotSayThatNothingHelpsBehindWhatDoes) {
  PlanSubject subject = subject_of_count(kGB, Precision::bf16);
  subject.activations = 60 * kGB;
  subject.lighter = {{"--recompute full", 9 * kGB}};
  const auto lines = advice(subject, config_in(Precision::bf16, 3), 1, {.device = 24 * kGB, .host = {}});
  EXPECT_EQ(lines.at(1), "Stage 3 with --recompute full would fit: 21.42 GiB a rank.");
  for (const std::string& line : lines) EXPECT_EQ(line.find("would not fit"), std::string::npos) << line;
}

TEST(Advice, ActivationsOnTheHostCountThere) {
  PlanSubject subject = subject_of_count(kGB, Precision::bf16);
  subject.activations = 60 * kGB;
  subject.lighter = {{"--recompute full", 30 * kGB}, {"and inputs on the host", 2 * kGB, 28 * kGB}};
  Budget budget{.device = 24 * kGB, .host = 100 * kGB, .ranks_per_host = 2};
  const auto line = [&] { return advice(subject, config_in(Precision::bf16, 3), 2, budget)[1]; };
  EXPECT_EQ(
      line(),
      "Stage 3 with and inputs on the host would fit: 8.382 GiB a rank and 52.15 GiB of host memory for 2 ranks.");
  budget.host = 50 * kGB;
  EXPECT_THAT(line(), ::testing::Not(HasSubstr("inputs on the host would fit: 8")));
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
      HasSubstr("Stage 3 with offload_optimizer and shoal.offload_gradients on with shoal.offload_update cpu and "
                "offload_param, ratio 0.78 and --recompute full --batch 1 would fit: 22.21 GiB a GPU"));
  subject.lighter.back().activations = kGB;
  EXPECT_THAT(
      line(),
      HasSubstr("Stage 3 with offload_optimizer and shoal.offload_gradients on with shoal.offload_update cpu and "
                "--recompute full --batch 1 would fit: 17.23 GiB a GPU"));
}

}  // namespace
}  // namespace shoal
