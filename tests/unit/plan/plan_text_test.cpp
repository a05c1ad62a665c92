#include "plan/plan_text.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "unit/plan/planned_models.h"

namespace shoal {
namespace {

using testing::config_in;
using testing::stack;

TEST(PlanText, ShowsTheClassicArithmeticOf7BOn8Ranks) {
  const PlanReport report{.subject = subject_of_count(7'000'000'000, Precision::bf16),
                          .config = config_in(Precision::bf16, 3),
                          .world = 8,
                          .budget = {},
                          .notes = {"No --config: counted in bf16."}};
  EXPECT_EQ(plan_text(report), R"(any model: 7,000,000,000 parameters, bf16, 8 ranks
No --config: counted in bf16.

model states a rank: mixed precision Adam by the book, and as Shoal holds them in bf16

stage       2 + 2 + 12           Shoal
0            104.3 GiB       91.27 GiB
1            35.86 GiB       34.23 GiB
2            24.45 GiB       22.82 GiB
3*           13.04 GiB       11.41 GiB

Gathered units, buffers and activations depend on the model: give --model to count them.
)");
}

TEST(PlanText, ShowsEveryKindOfByteOfAModel) {
  PlanReport report{.subject = stack(4, 1024, DType::bf16),
                    .config = config_in(Precision::bf16, 2),
                    .world = 4,
                    .budget = {.device = size_t{40} << 20, .host = {}},
                    .workload = "micro-batch of 1 x 8 tokens"};
  report.config.zero.prefetch_bucket_size = 0;
  report.subject.activations = 3 << 20;
  EXPECT_EQ(plan_text(report), R"(stack: 8,392,704 parameters in 4 units, bf16, 4 ranks, micro-batch of 1 x 8 tokens

bytes a rank (* the config's stage)

stage      weights   gradients   optimizer    gathered     buffers  activations       total  fits
0        16.01 MiB   16.01 MiB   80.04 MiB         0 B       3 MiB        3 MiB   118.1 MiB  no
1        16.01 MiB   16.01 MiB   20.01 MiB         0 B       3 MiB        3 MiB   58.03 MiB  no
2*       16.01 MiB   4.002 MiB   20.01 MiB         0 B      11 MiB        3 MiB   54.02 MiB  no
3        4.008 MiB   4.002 MiB   20.01 MiB       4 MiB      11 MiB        3 MiB   46.02 MiB  no

model states a rank: mixed precision Adam by the book, and as Shoal holds them in bf16

stage       2 + 2 + 12           Shoal
0            128.1 MiB       112.1 MiB
1            56.03 MiB       52.03 MiB
2*           44.02 MiB       40.02 MiB
3            32.02 MiB       28.02 MiB

Stage 2 does not fit: 54.02 MiB a rank, 40 MiB a GPU.
No stage fits; stage 3 takes 46.02 MiB a rank.
Stage 3 with offload_optimizer, ratio 0.56 would fit: 39.82 MiB a GPU, 11.21 MiB of host memory for 1 rank.
Without offload stage 3 fits on 8 ranks.
)");
}

TEST(PlanText, ShowsWhatIsFrozenApart) {
  PlanReport report{
      .subject = stack(2, 1024, DType::bf16), .config = config_in(Precision::bf16, 3), .world = 2, .budget = {}};
  for (UnitSpec& unit : report.subject.units) {
    for (ParamSpec& param : unit.params) param.trainable = false;
    unit.params.push_back({.name = unit.name + ".lora", .shape = {16, 1024}, .dtype = DType::bf16});
  }
  const std::string text = plan_text(report);
  EXPECT_NE(text.find("stack: 4,229,120 parameters, 32,768 of them trained (0.775 %) in 2 units"), std::string::npos)
      << text;
  EXPECT_NE(text.find("\nof the weights, bytes a rank\n\n"
                      "stage           frozen         trained\n"
                      "0            8.004 MiB          64 KiB\n"
                      "1            8.004 MiB          64 KiB\n"
                      "2            8.004 MiB          64 KiB\n"
                      "3*           4.004 MiB          64 KiB\n"),
            std::string::npos)
      << text;
  const json::Value root = json::parse(plan_json(report), "plan");
  EXPECT_EQ(root.find("trained_parameters")->as_integer(), 32768);
  for (const json::Value& stage : root.find("stages")->as_array()) {
    EXPECT_EQ(stage.find("frozen_weights")->as_integer() + stage.find("trained_weights")->as_integer(),
              stage.find("weights")->as_integer());
    EXPECT_EQ(stage.find("optimizer")->as_integer(), (stage.find("stage")->as_integer() == 0 ? 10 : 5) * 32768);
  }
}

TEST(PlanText, ShowsSettingsWhereThereIsMemoryToFitInto) {
  PlanReport report{.subject = subject_of_count(1000, Precision::bf16),
                    .config = config_in(Precision::bf16, 3),
                    .budget = {.device = 1 << 30, .host = {}}};
  const auto end_of = [&] {
    const std::string text = plan_text(report);
    return text.substr(std::min(text.size(), text.find("\nAs settings:")));
  };
  EXPECT_EQ(end_of(), "") << "none are known";
  EXPECT_TRUE(json::parse(plan_json(report), "plan").find("settings")->is_null());
  report.settings = settings_with(json::parse(R"({"zero_optimization": {"stage": 3}})", "config"), {}, "--sequence 64");
  EXPECT_EQ(end_of(), "") << "it is planned as the config has it";
  report.settings = settings_with(report.settings->config, {"bf16.enabled=true"}, "--recompute full");
  EXPECT_EQ(end_of(), R"(
As settings: --set bf16.enabled=true --recompute full
As a config, beside --recompute full:
{
  "zero_optimization": {
    "stage": 3
  },
  "bf16": {
    "enabled": true
  }
}
)");
  const json::Value root = json::parse(plan_json(report), "plan");
  EXPECT_EQ(json::write(*root.find("settings")),
            R"({"set": ["bf16.enabled=true"], "flags": ["--recompute", "full"], )"
            R"("config": {"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}})");
  report.budget = {};
  EXPECT_EQ(end_of(), "");
}

TEST(PlanJson, SaysTheSameInNumbers) {
  const PlanReport report{.subject = subject_of_count(7'000'000'000, Precision::bf16),
                          .config = config_in(Precision::bf16, 3),
                          .world = 8,
                          .budget = {.device = 24'000'000'000, .host = {}}};
  const json::Value root = json::parse(plan_json(report), "plan");
  EXPECT_EQ(root.find("parameters")->as_integer(), 7'000'000'000);
  const json::Array& stages = root.find("stages")->as_array();
  ASSERT_EQ(stages.size(), 4u);
  EXPECT_EQ(stages[3].find("model_states")->as_integer(), 12'250'000'896) << "a shard is a multiple of 128 elements";
  EXPECT_EQ(stages[1].find("classic_model_states")->as_number(), 38.5e9);
  EXPECT_FALSE(stages[2].find("fits")->as_boolean());
  EXPECT_TRUE(stages[3].find("fits")->as_boolean());
  EXPECT_FALSE(root.find("advice")->as_array().empty());
}

TEST(PlanText, ShowsTheMeshAndWhatTravelsByLink) {
  PlanReport report{
      .subject = stack(4, 1024, DType::bf16), .config = config_in(Precision::bf16, 3), .world = 4, .budget = {}};
  EXPECT_EQ(plan_text(report).find("mesh"), std::string::npos);
  report.config.shoal.ranks_per_host = 2;
  EXPECT_NE(plan_text(report).find("\na step each rank sends "), std::string::npos);
  report.config.zero.mics_shard_size = 2;
  EXPECT_NE(plan_text(report).find("\nmesh: replica 2 x shard 2\na step each rank sends "), std::string::npos);
  report.config.zero.mics_shard_size = -1;
  report.config.zero.hpz_partition_size = 2;
  EXPECT_NE(plan_text(report).find("second copy of weights (zero_hpz_partition_size): 8 MiB a rank"), std::string::npos)
      << plan_text(report);
  const json::Value root = json::parse(plan_json(report), "plan");
  EXPECT_EQ(root.find("mesh")->as_text(), "replica 2 x shard 2");
  EXPECT_GT(root.find("sent_between_hosts")->as_integer(), 0);
  EXPECT_GT(root.find("stages")->as_array()[3].find("second_weights")->as_integer(), 0);
}

}  // namespace
}  // namespace shoal
