#include "engine/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "message_of.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

TEST(EngineOptions, GradientsThatAreToLeaveAGpuAndCannotAreRefused) {
  const ModelLayout layout = lay_out({{.name = "u", .params = {{"p", {1 << 20}, DType::bf16, true, 0}}, .borrows = {}}},
                                     {.mesh = 1, .persistence_threshold = 0});
  Config config;
  config.shoal.offload_gradients = OffloadGradients::on;
  const auto message = [&](at::Device device) {
    return testing::message_of([&] { check_gradients(layout, config, device); });
  };
  const at::Device gpu(at::kCUDA, 0);
  EXPECT_THAT(message(gpu), HasSubstr("[config shoal.offload_gradients]"));
  EXPECT_EQ(message(at::kCPU), "") << "there is one memory";
  config.zero.offload_optimizer.tier = Tier::host;
  EXPECT_THAT(message(gpu), HasSubstr("shoal.offload_update cpu")) << "the GPU updates";
  config.shoal.offload_update = OffloadUpdate::host;
  EXPECT_EQ(message(gpu), "");
  config.zero.offload_optimizer.ratio = 0.5;
  EXPECT_THAT(message(gpu), HasSubstr("a ratio of 1")) << "the GPU updates a part of the only unit";
  config.shoal.offload_gradients = OffloadGradients::automatic;
  EXPECT_EQ(message(gpu), "");
}

TEST(EngineOptions, StatesThatAreToBeUpdatedAheadAndCannotAreRefused) {
  const ModelLayout layout = lay_out({{.name = "u", .params = {{"p", {1 << 20}, DType::bf16, true, 0}}, .borrows = {}}},
                                     {.mesh = 1, .persistence_threshold = 0});
  Config config;
  config.zero.stage = 3;
  const auto message = [&](at::Device device) {
    return testing::message_of([&] { check_speculation(layout, config, device); });
  };
  const at::Device gpu(at::kCUDA, 0);
  EXPECT_EQ(message(gpu), "");
  config.shoal.speculative_update = true;
  EXPECT_THAT(message(at::kCPU), HasSubstr("[config shoal.speculative_update]")) << "states are on the device";
  config.zero.offload_optimizer.tier = Tier::disk;
  EXPECT_THAT(message(at::kCPU), HasSubstr("no optimizer states in host memory"));
  config.zero.offload_optimizer.tier = Tier::host;
  EXPECT_EQ(message(at::kCPU), "");
  EXPECT_THAT(message(gpu), HasSubstr("shoal.offload_update to cpu")) << "the GPU updates";
  config.shoal.offload_update = OffloadUpdate::host;
  EXPECT_EQ(message(gpu), "");
  config.zero.offload_param.tier = Tier::host;
  EXPECT_EQ(message(gpu), "");
  config.zero.offload_optimizer.ratio = 0.5;
  EXPECT_EQ(message(gpu), "") << "the GPU updates the rest beside it";
  config.zero.offload_param.tier = Tier::disk;
  EXPECT_THAT(message(at::kCPU), HasSubstr("offload_param.device to none"));
}

TEST(EngineOptions, TheSumOfAllLeavesIsDividedByTheirNumberAtOnce) {
  Config config;
  config.batch = {24, 1, 6};
  EXPECT_EQ(gradient_factor(config, 4, /*caller_divides=*/false), 1.0f / 24);
  EXPECT_EQ(gradient_factor(config, 4, /*caller_divides=*/true), 0.25f) << "by the accumulation steps";
  config.prescale_gradients = true;
  EXPECT_EQ(gradient_factor(config, 4, false), 1.0f / 24);
  config.prescale_gradients = false;
  config.gradient_predivide_factor = 2;
  EXPECT_EQ(gradient_factor(config, 4, false), 1.0f / 24);
  config.gradient_sum = true;
  EXPECT_EQ(gradient_factor(config, 4, false), 1.0f / 6);
  EXPECT_EQ(gradient_factor(config, 4, true), 1.0f);
}

TEST(EngineOptions, RanksThatShareSamplesCountOnce) {
  const Mesh pairs({{.name = "shard", .size = 4}, {.name = "sequence", .size = 2, .own_samples = false}});
  Config config;
  config.batch = {16, 2, 2};
  EXPECT_EQ(gradient_factor(config, pairs, false), 0.125f);
  check_batch(config, pairs);
  EXPECT_THROW(check_batch(config, 8), Error);
}

TEST(EngineOptions, AGroupWithoutItsOwnValuesHasTheConfigs) {
  Config config;
  config.optimizer.lr = 0.5;
  config.optimizer.weight_decay = 0.25;
  EngineOptions options;
  options.groups = {{}, {.lr = 2.0, .weight_decay = 0.0}};
  EXPECT_EQ(group_lrs(options, config), (std::vector<double>{0.5, 2.0}));
  EXPECT_EQ(group_weight_decays(options, config), (std::vector<double>{0.25, 0.0}));
}

TEST(EngineOptions, RefusesABatchThatWasDerivedForAnotherWorld) {
  Config config;
  config.batch = {8, 2, 2};
  check_batch(config, 2);
  EXPECT_THAT(testing::message_of([&] { check_batch(config, 4); }), HasSubstr("8 is not 2 a rank * 2"));
}

}  // namespace
}  // namespace shoal
