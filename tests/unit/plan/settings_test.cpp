#include "plan/settings.h"

#include <gmock/gmock.h>

#include "shoal/config.h"
#include "shoal/error.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

json::Value written(const std::string& text) { return json::parse(text, "test"); }

TEST(PlanSettings, OfWhatIsSaidTwiceTheLastWordCounts) {
  const PlanSettings settings = settings_with(
      written(R"({"zero_optimization": {"stage": 1, "overlap_comm": false}})"),
      {"bf16.enabled=true", "zero_optimization.stage=2"},
      "--recompute selective --set zero_optimization.stage=3 --set fp8.enabled=true --recompute full --sequence 64");
  EXPECT_THAT(settings.overrides, ElementsAre("bf16.enabled=true", "zero_optimization.stage=3", "fp8.enabled=true"));
  EXPECT_THAT(settings.flags, ElementsAre("--recompute", "full", "--sequence", "64"));
  EXPECT_EQ(settings.config, written(R"({"zero_optimization": {"overlap_comm": false, "stage": 3},
                                         "bf16": {"enabled": true}, "fp8": {"enabled": true}})"))
      << json::write(settings.config);
  EXPECT_EQ(command_words(settings),
            "--set bf16.enabled=true --set zero_optimization.stage=3 --set fp8.enabled=true --recompute full "
            "--sequence 64");
}

TEST(PlanSettings, WithoutWordsTheConfigStaysAsItIs) {
  const PlanSettings settings = settings_with(written(R"({"zero_optimization": {"stage": 0}})"), {}, "");
  EXPECT_THAT(settings.overrides, IsEmpty());
  EXPECT_THAT(settings.flags, IsEmpty());
  EXPECT_EQ(json::write(settings.config), R"({"zero_optimization": {"stage": 0}})");
  EXPECT_EQ(command_words(settings), "");
}

TEST(PlanSettings, WordsOfACommandAreQuotedForAShell) {
  const PlanSettings settings =
      settings_with(written("{}"), {"optimizer.params.betas=[0.9, 0.99]", "optimizer.type=it's"},
                    "--set zero_optimization.offload_optimizer.nvme_path=<folder>");
  EXPECT_EQ(command_words(settings),
            "--set 'optimizer.params.betas=[0.9, 0.99]' --set 'optimizer.type=it'\\''s' --set "
            "zero_optimization.offload_optimizer.nvme_path=<folder>");
}

TEST(PlanSettings, WhatIsNoSettingIsAnError) {
  EXPECT_THROW(settings_with(written("{}"), {"stage"}, ""), Error);
  EXPECT_THROW(settings_with(written(R"({"bf16": 1})"), {"bf16.enabled=true"}, ""), Error);
}

}  // namespace
}  // namespace shoal
