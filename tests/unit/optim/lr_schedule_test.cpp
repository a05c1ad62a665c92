// Against DeepSpeed's own classes (deepspeed/runtime/lr_schedules.py, 0.19.6), run on a torch.optim.Adam with two
// parameter groups of lr 0.01 and 0.002:
//   schedule = WarmupLR(optimizer, **params)
//   for step in range(n): row.append(optimizer.param_groups[g]["lr"]); schedule.step()
// so entry n is the rate that step n+1 is taken with.
#include "optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace shoal {

namespace {

using Params = std::map<std::string, double>;
using Rates = std::vector<double>;

LrSchedule schedule_of(SchedulerKind kind, const Params& params, bool log_warmup = true) {
  return LrSchedule({.kind = kind, .params = params, .log_warmup = log_warmup}, {0.01, 0.002});
}

void expect_rates(const LrSchedule& schedule, const Rates& first, const Rates& second) {
  for (size_t step = 0; step < first.size(); ++step) {
    const Rates rates = schedule.lrs(static_cast<int64_t>(step));
    ASSERT_EQ(rates.size(), 2u);
    EXPECT_NEAR(rates[0], first[step], 1e-15) << "step " << step;
    EXPECT_NEAR(rates[1], second[step], 1e-15) << "step " << step;
  }
}
void expect_rates(const LrSchedule& schedule, const Rates& both) { expect_rates(schedule, both, both); }

}  // namespace

TEST(LrSchedule, WithoutOneEveryGroupKeepsItsRate) {
  const LrSchedule schedule = schedule_of(SchedulerKind::none, {});
  expect_rates(schedule, Rates(5, 0.01), Rates(5, 0.002));
  EXPECT_FALSE(schedule.beta1(3).has_value());
  EXPECT_FALSE(schedule.beta2().has_value());
}

TEST(LrSchedule, WarmupEndsAtTheGroupsRateUnlessAMaximumIsGiven) {
  expect_rates(schedule_of(SchedulerKind::warmup, {{"warmup_min_lr", 0}, {"warmup_num_steps", 5}}),
               {0, 0, 0.0043067655807339303, 0.006826061944859854, 0.0086135311614678606, 0.01, 0.01, 0.01},
               {0, 0, 0.00086135311614678612, 0.0013652123889719707, 0.0017227062322935722, 0.002, 0.002, 0.002});
  expect_rates(
      schedule_of(SchedulerKind::warmup, {{"warmup_min_lr", 0.001}, {"warmup_max_lr", 0.004}, {"warmup_num_steps", 5}}),
      {0.001, 0.001, 0.0022920296742201789, 0.0030478185834579563, 0.0035840593484403583, 0.004, 0.004, 0.004});
}

TEST(LrSchedule, LinearWarmupRisesByEqualSteps) {
  expect_rates(schedule_of(SchedulerKind::warmup,
                           {{"warmup_min_lr", 0.001}, {"warmup_max_lr", 0.004}, {"warmup_num_steps", 5}}, false),
               {0.001, 0.001, 0.0016, 0.0022, 0.0028, 0.0034, 0.004, 0.004});
}

TEST(LrSchedule, AWarmupOfOneStepCountsAsTwo) {
  expect_rates(
      schedule_of(SchedulerKind::warmup, {{"warmup_min_lr", 0}, {"warmup_max_lr", 0.004}, {"warmup_num_steps", 1}}),
      {0, 0, 0.004, 0.004, 0.004});
}

TEST(LrSchedule, WarmupDecayFallsToItsMinimumAtTheLastStep) {
  expect_rates(
      schedule_of(
          SchedulerKind::warmup_decay,
          {{"total_num_steps", 9}, {"warmup_min_lr", 0.001}, {"warmup_max_lr", 0.004}, {"warmup_num_steps", 4}}),
      {0.001, 0.001, 0.0025, 0.0033774437510817345, 0.004, 0.004, 0.0034, 0.0028, 0.0022, 0.0016, 0.001});
}

TEST(LrSchedule, ATotalShorterThanTheWarmupDropsToTheMinimumAfterIt) {
  expect_rates(
      schedule_of(SchedulerKind::warmup_decay,
                  {{"total_num_steps", 2}, {"warmup_min_lr", 0}, {"warmup_max_lr", 0.004}, {"warmup_num_steps", 4}},
                  false),
      {0, 0, 0.001, 0.002, 0.003, 0});
}

TEST(LrSchedule, WarmupCosineScalesEachGroupsRate) {
  expect_rates(
      schedule_of(
          SchedulerKind::warmup_cosine,
          {{"total_num_steps", 9}, {"warmup_min_ratio", 0.1}, {"warmup_num_steps", 4}, {"cos_min_ratio", 0.05}}),
      {0, 0.001, 0.0055, 0.0081323312532452039, 0.01, 0.0090928307232810007, 0.0067178307232810012,
       0.0037821692767189999, 0.0014071692767190004, 0.0005, 0.0005},
      {0, 0.0002, 0.0011, 0.0016264662506490406, 0.002, 0.0018185661446562, 0.0013435661446562002,
       0.00075643385534379995, 0.00028143385534380006, 0.0001, 0.0001});
  expect_rates(schedule_of(SchedulerKind::warmup_cosine, {{"total_num_steps", 9}, {"warmup_num_steps", 3}}, false),
               {0, 0, 0.0033333333333333331, 0.0066666666666666662, 0.009330194006220302, 0.00750025, 0.0050005,
                0.0025007500000000012, 0.00067080599377969874, 1e-6, 1e-6},
               {0, 0, 0.00066666666666666664, 0.0013333333333333333, 0.0018660388012440602, 0.00150005, 0.0010001,
                0.0005001500000000002, 0.00013416119875593973, 2e-7, 2e-7});
}

TEST(LrSchedule, OneCycleRisesFallsAndDecaysWithTheMomentumAgainstIt) {
  const LrSchedule schedule = schedule_of(SchedulerKind::one_cycle, {{"cycle_min_lr", 0.001},
                                                                     {"cycle_max_lr", 0.011},
                                                                     {"cycle_first_step_size", 4},
                                                                     {"cycle_second_step_size", 3},
                                                                     {"decay_step_size", 2},
                                                                     {"decay_lr_rate", 0.5},
                                                                     {"decay_mom_rate", 0.1}});
  expect_rates(schedule, {0.001, 0.0035, 0.006, 0.0085, 0.011, 0.0076666666666666619, 0.0043333333333333314, 0.001,
                          0.0008, 0.00066666666666666664, 0.00057142857142857147, 0.0005});
  const Rates momenta = {0.8, 0.875, 0.85, 0.825, 0.8, 0.83333333333333337, 0.8666666666666667,
                         0.9, 0.945, 0.99, 1.035, 1.08};
  for (size_t step = 0; step < momenta.size(); ++step) {
    EXPECT_NEAR(schedule.beta1(static_cast<int64_t>(step)).value(), momenta[step], 1e-14) << "step " << step;
  }
  EXPECT_EQ(schedule.beta2(), 0.99);
}

TEST(LrSchedule, OneCycleFallsAsLongAsItRisesUnlessToldOtherwise) {
  const Params params = {{"cycle_min_lr", 0.001}, {"cycle_max_lr", 0.011}, {"cycle_first_step_size", 3}};
  expect_rates(schedule_of(SchedulerKind::one_cycle, params),
               {0.001, 0.0043333333333333349, 0.0076666666666666645, 0.011, 0.0076666666666666689,
                0.0043333333333333297, 0.001, 0.001, 0.001});
}

TEST(LrSchedule, OneCycleClimbsStairsWhereAskedTo) {
  expect_rates(
      schedule_of(SchedulerKind::one_cycle, {{"cycle_min_lr", 0.001},
                                             {"cycle_max_lr", 0.011},
                                             {"cycle_first_step_size", 5},
                                             {"cycle_second_step_size", 4},
                                             {"cycle_first_stair_count", 2},
                                             {"cycle_second_stair_count", 3}}),
      {0.001, 0.001, 0.001, 0.006, 0.006, 0.011, 0.0076666666666666654, 0.0043333333333333331, 0.001, 0.001, 0.001});
}

TEST(LrSchedule, OneCycleLeavesTheMomentumAloneWhereAskedTo) {
  const LrSchedule schedule = schedule_of(
      SchedulerKind::one_cycle,
      {{"cycle_min_lr", 0.001}, {"cycle_max_lr", 0.011}, {"cycle_first_step_size", 3}, {"cycle_momentum", 0}});
  EXPECT_FALSE(schedule.beta1(2).has_value());
  EXPECT_FALSE(schedule.beta2().has_value());
}

TEST(LrSchedule, RangeTestRisesSmoothlyOrInStairs) {
  Params params = {{"lr_range_test_min_lr", 0.001}, {"lr_range_test_step_size", 3}, {"lr_range_test_step_rate", 2}};
  expect_rates(
      schedule_of(SchedulerKind::lr_range_test, params),
      {0.001, 0.0016666666666666666, 0.0023333333333333331, 0.003, 0.0036666666666666666, 0.004333333333333334, 0.005});
  params["lr_range_test_staircase"] = 1;
  expect_rates(schedule_of(SchedulerKind::lr_range_test, params), {0.001, 0.001, 0.001, 0.003, 0.003, 0.003, 0.005});
}

// Against transformers 5.17's get_wsd_schedule and get_cosine_with_hard_restarts_schedule_with_warmup.
TEST(LrSchedule, WarmupStableDecayFallsInItsLastSteps) {
  const Params params = {
      {"warmup_num_steps", 2}, {"total_num_steps", 10}, {"decay_num_steps", 4}, {"min_lr_ratio", 0.1}};
  const auto with = [](Params given, DecayCurve curve) {
    return LrSchedule({SchedulerKind::warmup_stable_decay, std::move(given), true, curve}, {0.01, 0.002});
  };
  const auto expect_first = [&](DecayCurve curve, const Rates& rates) {
    for (size_t step = 0; step < rates.size(); ++step) {
      EXPECT_NEAR(with(params, curve).lrs(static_cast<int64_t>(step))[0], rates[step], 1e-15) << "step " << step;
    }
  };
  expect_first(DecayCurve::linear,
               {0.001, 0.0055, 0.01, 0.01, 0.01, 0.01, 0.01, 0.00775, 0.0055, 0.00325, 0.001, 0.001});
  expect_first(DecayCurve::cosine, {0.001, 0.0055, 0.01, 0.01, 0.01, 0.01, 0.01, 0.008681980515339464, 0.0055,
                                    0.0023180194846605367, 0.001, 0.001});
  expect_first(DecayCurve::one_minus_sqrt, {0.001, 0.0055, 0.01, 0.01, 0.01, 0.01, 0.01, 0.0055, 0.0036360389693210716,
                                            0.0022057713659400526, 0.001, 0.001});
  expect_rates(with({{"warmup_num_steps", 0}, {"total_num_steps", 6}, {"decay_num_steps", 3}}, DecayCurve::linear),
               {0.01, 0.01, 0.01, 0.01, 0.02 / 3, 0.01 / 3, 0, 0},
               {0.002, 0.002, 0.002, 0.002, 0.004 / 3, 0.002 / 3, 0, 0});
  const LrSchedule tenth = with({{"warmup_num_steps", 0}, {"total_num_steps", 25}}, DecayCurve::linear);
  EXPECT_EQ(tenth.lrs(22)[0], 0.01) << "three steps";
  EXPECT_NEAR(tenth.lrs(24)[0], 0.01 / 3, 1e-15);
  const LrSchedule cut =
      with({{"warmup_num_steps", 4}, {"total_num_steps", 6}, {"decay_num_steps", 4}}, DecayCurve::linear);
  EXPECT_EQ(cut.lrs(4)[0], 0.01) << "after the warm-up";
  EXPECT_NEAR(cut.lrs(6)[0], 0.005, 1e-15);
}

TEST(LrSchedule, CosineRestartsBeginEachCycleWithTheFullRate) {
  Params params = {{"warmup_num_steps", 2}, {"total_num_steps", 10}, {"num_cycles", 2}};
  const Rates rates = {0,     0.005,
                       0.01,  0.008535533905932738,
                       0.005, 0.0014644660940672626,
                       0.01,  0.008535533905932738,
                       0.005, 0.0014644660940672626,
                       0,     0};
  for (size_t step = 0; step < rates.size(); ++step) {
    EXPECT_NEAR(schedule_of(SchedulerKind::warmup_cosine_restarts, params).lrs(static_cast<int64_t>(step))[0],
                rates[step], 1e-15)
        << "step " << step;
  }
  params["min_lr_ratio"] = 0.25;
  const LrSchedule above = schedule_of(SchedulerKind::warmup_cosine_restarts, params);
  EXPECT_EQ(above.lrs(6)[0], 0.01);
  EXPECT_NEAR(above.lrs(8)[0], 0.00625, 1e-15);
  EXPECT_NEAR(above.lrs(10)[0], 0.0025, 1e-15);
}

}  // namespace shoal
