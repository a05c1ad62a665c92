#include "train/param_groups.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "message_of.h"
#include "temp_folder.h"

namespace shoal::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;

std::vector<Unit> some_units() {
  return {{"embed", {{"embed.weight", at::zeros({8, 4})}}},
          {"layers.0", {{"layers.0.norm", at::zeros({4})}, {"layers.0.up", at::zeros({4, 4})}}},
          {"head", {{"norm", at::zeros({4})}, {"head.weight", at::zeros({8, 4})}, {"head.bias", at::zeros({8})}}}};
}

Config config_scheduled(const std::string& scheduler = "{}") {
  return Config::from_text(R"({"train_batch_size": 1, "optimizer": {"type": "AdamW", "params": {"lr": 0.1,
    "weight_decay": 0.5}}, "scheduler": )" +
                           scheduler + "}");
}

// Of each parameter, by the name of its own: rate and decay, -1 where the config's hold.
std::vector<std::string> settings_of(const GroupedUnits& grouped) {
  std::vector<std::string> settings;
  for (const Unit& unit : grouped.units) {
    for (const Parameter& param : unit.params) {
      const ParamGroup& group = grouped.groups.at(static_cast<size_t>(param.group));
      settings.push_back(
          fmt::format("{} {:.3g} {:.3g}", param.name, group.lr.value_or(-1), group.weight_decay.value_or(-1)));
    }
  }
  return settings;
}

TEST(ParamGroups, WithoutFlagsThereIsOne) {
  const GroupedUnits grouped = group_params(some_units(), {}, config_scheduled());
  EXPECT_EQ(grouped.groups.size(), 1u);
  EXPECT_THAT(settings_of(grouped), ElementsAre("embed.weight -1 -1", "layers.0.norm -1 -1", "layers.0.up -1 -1",
                                                "norm -1 -1", "head.weight -1 -1", "head.bias -1 -1"));
  EXPECT_THAT(param_group_lines(some_units(), {}, config_scheduled()), ElementsAre());
}

TEST(ParamGroups, NormsAndBiasesDoNotDecay) {
  TrainOptions options;
  options.no_decay = true;
  EXPECT_THAT(settings_of(group_params(some_units(), options, config_scheduled())),
              ElementsAre("embed.weight -1 -1", "layers.0.norm -1 0", "layers.0.up -1 -1", "norm -1 0",
                          "head.weight -1 -1", "head.bias -1 0"));
  EXPECT_THAT(param_group_lines(some_units(), options, config_scheduled()),
              ElementsAre("--no-decay: no weight decay for norms and biases, 16 parameters"));
  Config plain = config_scheduled();
  plain.optimizer.weight_decay = 0;
  EXPECT_THAT(param_group_lines(some_units(), options, plain),
              ElementsAre("--no-decay changes nothing: the weight decay is 0"));
  options.lora = "r=1,alpha=1";
  EXPECT_THAT(param_group_lines(some_units(), options, plain),
              ElementsAre("--no-decay changes nothing: --lora trains neither norms nor biases"));
}

TEST(ParamGroups, EachLayerLearnsSlowerThanTheOneAbove) {
  TrainOptions options;
  options.layer_decay = 0.5;
  EXPECT_THAT(settings_of(group_params(some_units(), options, config_scheduled())),
              ElementsAre("embed.weight 0.025 -1", "layers.0.norm 0.05 -1", "layers.0.up 0.05 -1", "norm -1 -1",
                          "head.weight -1 -1", "head.bias -1 -1"));
  EXPECT_THAT(param_group_lines(some_units(), options, config_scheduled()),
              ElementsAre("--layer-decay 0.5: learning rates from 0.025 (embed) to 0.1 (head)"));
  options.no_decay = true;
  const GroupedUnits both = group_params(some_units(), options, config_scheduled());
  EXPECT_EQ(both.groups.size(), 5u);
  EXPECT_THAT(settings_of(both), ElementsAre("embed.weight 0.025 -1", "layers.0.norm 0.05 0", "layers.0.up 0.05 -1",
                                             "norm -1 0", "head.weight -1 -1", "head.bias -1 0"));
}

TEST(ParamGroups, AScheduleWithOneRateForAllContradictsLayerDecay) {
  TrainOptions options;
  const Config own =
      config_scheduled(R"({"type": "WarmupLR", "params": {"warmup_max_lr": 0.1, "warmup_num_steps": 2}})");
  check_param_groups(options, own);
  options.layer_decay = 0.9;
  EXPECT_EQ(
      message_of([&] { check_param_groups(options, own); }),
      "[--layer-decay] scheduler.params.warmup_max_lr is one rate for all, and layers could not have theirs. Take "
      "it out of the config, or leave the flag out.");
  check_param_groups(options, config_scheduled(R"({"type": "WarmupLR", "params": {"warmup_num_steps": 2}})"));
  EXPECT_THAT(message_of([&] {
                check_param_groups(options, config_scheduled(R"({"type": "OneCycle", "params": {"cycle_min_lr": 0.01,
                  "cycle_max_lr": 0.1, "cycle_first_step_size": 10}})"));
              }),
              HasSubstr("OneCycle has learning rates of its own"));
  for (const double wrong : {0.0, -1.0, 1.5}) {
    options.layer_decay = wrong;
    EXPECT_THAT(message_of([&] { check_param_groups(options, config_scheduled()); }), HasSubstr("no share"));
  }
}

TEST(ParamGroups, ARunThatGoesOnWithOtherFlagsSaysSo) {
  const testing::TempFolder folder;
  const std::string plain = folder.write("plain.json", R"({"model": "gpt2"})");
  const std::string flags = folder.write("flags.json", R"({"no_decay": true, "layer_decay": 0.5})");
  TrainOptions options;
  EXPECT_EQ(param_group_change(options, plain), "");
  EXPECT_EQ(param_group_change(options, folder / "none.json"), "");
  EXPECT_EQ(param_group_change(options, folder.write("broken.json", "{")), "");
  EXPECT_EQ(param_group_change(options, flags),
            "so far the run was trained with --no-decay --layer-decay 0.5; it goes on without --no-decay and "
            "--layer-decay");
  options.layer_decay = 0.5;
  EXPECT_EQ(param_group_change(options, plain),
            "so far the run was trained without --no-decay and --layer-decay; it goes on with --layer-decay 0.5");
  options.no_decay = true;
  EXPECT_EQ(param_group_change(options, flags), "");
}

}  // namespace
}  // namespace shoal::train
