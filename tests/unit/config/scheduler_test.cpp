#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

using Params = std::map<std::string, double>;

static SchedulerConfig scheduler_of(const std::string& type, const std::string& params = "") {
  return parse_members(R"("scheduler": {"type": ")" + type + R"(", "params": {)" + params + "}}").scheduler;
}

TEST(Scheduler, NoneByDefault) {
  EXPECT_EQ(parse_members("").scheduler, SchedulerConfig{});
  EXPECT_EQ(parse_members(R"("scheduler": {"type": null})").scheduler, SchedulerConfig{});
}

TEST(Scheduler, EachTypeHasItsDefaults) {
  EXPECT_EQ(scheduler_of("WarmupLR").params, (Params{{"warmup_min_lr", 0}, {"warmup_num_steps", 1000}}));
  EXPECT_EQ(
      scheduler_of("WarmupDecayLR", "\"total_num_steps\": 5000").params,
      (Params{{"warmup_min_lr", 0}, {"warmup_max_lr", 1e-3}, {"warmup_num_steps", 1000}, {"total_num_steps", 5000}}));
  EXPECT_EQ(
      scheduler_of("WarmupCosineLR", "\"total_num_steps\": 5000").params,
      (Params{
          {"warmup_min_ratio", 0}, {"cos_min_ratio", 1e-4}, {"warmup_num_steps", 1000}, {"total_num_steps", 5000}}));
  EXPECT_EQ(scheduler_of("LRRangeTest").params, (Params{{"lr_range_test_min_lr", 1e-3},
                                                        {"lr_range_test_step_size", 2000},
                                                        {"lr_range_test_step_rate", 1},
                                                        {"lr_range_test_staircase", 0}}));
  EXPECT_EQ(scheduler_of("OneCycle", "\"cycle_min_lr\": 0.1, \"cycle_max_lr\": 0.2").params,
            (Params{{"cycle_min_lr", 0.1},
                    {"cycle_max_lr", 0.2},
                    {"decay_lr_rate", 0},
                    {"cycle_first_step_size", 2000},
                    {"cycle_first_stair_count", 0},
                    {"decay_step_size", 0},
                    {"cycle_momentum", 1},
                    {"cycle_min_mom", 0.8},
                    {"cycle_max_mom", 0.9},
                    {"decay_mom_rate", 0}}));
}

TEST(Scheduler, TransformersTwoHaveTheirDefaults) {
  EXPECT_EQ(scheduler_of("WarmupStableDecayLR", "\"total_num_steps\": 5000").params,
            (Params{{"warmup_num_steps", 0}, {"total_num_steps", 5000}, {"min_lr_ratio", 0}}));
  EXPECT_EQ(scheduler_of("WarmupCosineRestartsLR", "\"total_num_steps\": 5000").params,
            (Params{{"warmup_num_steps", 0}, {"total_num_steps", 5000}, {"min_lr_ratio", 0}, {"num_cycles", 1}}));
  const auto curve = [](const std::string& name) {
    return scheduler_of("WarmupStableDecayLR", "\"total_num_steps\": 9, \"decay_type\": \"" + name + "\"").decay_curve;
  };
  EXPECT_EQ(curve("cosine"), DecayCurve::cosine);
  EXPECT_EQ(curve("linear"), DecayCurve::linear);
  EXPECT_EQ(curve("1-sqrt"), DecayCurve::one_minus_sqrt);
  EXPECT_NE(mistakes_of(R"("scheduler": {"type": "WarmupStableDecayLR", "params": {"total_num_steps": 9, )"
                        R"("num_cycles": 2}})"),
            "");
}

TEST(Scheduler, WarmupIsLogarithmicOrLinear) {
  EXPECT_TRUE(scheduler_of("WarmupLR").log_warmup);
  EXPECT_FALSE(scheduler_of("WarmupLR", "\"warmup_type\": \"linear\"").log_warmup);
}

TEST(Scheduler, WhatATypeNeedsIsAskedFor) {
  EXPECT_EQ(
      mistakes_of(R"("scheduler": {"type": "WarmupDecayLR"})"),
      "[line 1, scheduler.params.total_num_steps] WarmupDecayLR needs this key and there is no default. Give it.");
  EXPECT_EQ(
      mistakes_of(R"("scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto"}})"),
      "[line 1, scheduler.params.total_num_steps] \"auto\" cannot be resolved: nobody gave the value. Give it here.");
  EXPECT_EQ(mistakes_of(R"("scheduler": {"params": {"warmup_num_steps": 5}})"),
            "[line 1, scheduler.params.warmup_num_steps] scheduler.type is not given, so nothing takes this. Give it, "
            "or remove the "
            "key.");
  EXPECT_NE(mistakes_of(R"("scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": null}})"), "");
}

TEST(Scheduler, AWarmupThatNeverEndsIsNoticed) {
  const Config config = parse_members(R"("scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 10}})");
  EXPECT_EQ(config.notices,
            std::vector<std::string>{"scheduler.params.total_num_steps: 10 ends before warmup_num_steps, 1000, so "
                                     "the whole run is warm-up."});
}

TEST(Scheduler, ADecayThatTheWarmupCutsIsNoticed) {
  const auto notices = [](int decay) {
    return parse_members(R"("scheduler": {"type": "WarmupStableDecayLR", "params": {"total_num_steps": 10, )"
                         R"("warmup_num_steps": 4, "decay_num_steps": )" +
                         std::to_string(decay) + "}}")
        .notices;
  };
  EXPECT_EQ(notices(6), std::vector<std::string>{});
  EXPECT_EQ(notices(7),
            std::vector<std::string>{"scheduler.params.decay_num_steps: the decay begins after the warm-up, "
                                     "6 steps before the end, and does not end."});
}

static std::vector<std::string> notices_of_cycle(const std::string& params, const std::string& optimizer = "AdamW") {
  return parse_members(R"("optimizer": {"type": ")" + optimizer +
                       R"("}, "scheduler": {"type": "OneCycle", "params": {)"
                       R"("cycle_min_lr": 0.1, "cycle_max_lr": 0.2)" +
                       params + "}}")
      .notices;
}

TEST(Scheduler, AMomentumThatTheOptimizerDoesNotHaveIsNoticed) {
  for (const std::string optimizer : {"SGD", "Adagrad"}) {
    EXPECT_EQ(notices_of_cycle("", optimizer),
              std::vector<std::string>{"scheduler.type: only the learning rate is cycled, since " + optimizer +
                                       " has no betas; cycle_momentum has no effect."});
    EXPECT_EQ(notices_of_cycle(", \"cycle_momentum\": false", optimizer), std::vector<std::string>{});
  }
  EXPECT_EQ(notices_of_cycle("", "Lion"), std::vector<std::string>{});
}

TEST(Scheduler, ADecayWithoutStepsIsNoticed) {
  for (const std::string key : {"decay_lr_rate", "decay_mom_rate"}) {
    EXPECT_EQ(notices_of_cycle(", \"" + key + "\": 0.5"),
              std::vector<std::string>{"scheduler.params." + key +
                                       ": no effect, since decay_step_size is 0: nothing changes after the cycle."});
    EXPECT_EQ(notices_of_cycle(", \"decay_step_size\": 5, \"" + key + "\": 0.5"), std::vector<std::string>{});
    EXPECT_EQ(notices_of_cycle(", \"" + key + "\": 0"), std::vector<std::string>{});
  }
}

}  // namespace shoal::config
