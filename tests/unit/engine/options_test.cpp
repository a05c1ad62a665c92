#include "engine/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "message_of.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

TEST(EngineOptions, APlacementThatNobodyCarriedOutIsRefused) {
  Config config;
  config.shoal.auto_placement = true;
  EXPECT_THAT(testing::message_of([&] { check_placed(config); }), HasSubstr("[config shoal.placement]"));
}

TEST(EngineOptions, TheMeanDividesOnceAfterTheSum) {
  const ReduceOptions options = reduce_options(Config{}, 4);
  EXPECT_EQ(options.pre, 1.0f);
  EXPECT_EQ(options.post, 0.25f);
}

TEST(EngineOptions, PrescalingDividesBeforeTheSumInstead) {
  Config config;
  config.prescale_gradients = true;
  const ReduceOptions options = reduce_options(config, 4);
  EXPECT_EQ(options.pre, 0.25f);
  EXPECT_EQ(options.post, 1.0f);
}

TEST(EngineOptions, APredivideFactorSplitsTheDivision) {
  Config config;
  config.gradient_predivide_factor = 2;
  const ReduceOptions options = reduce_options(config, 8);
  EXPECT_EQ(options.pre, 0.5f);
  EXPECT_EQ(options.post, 0.25f);
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
  check_world(config, 2);
  EXPECT_THAT(testing::message_of([&] { check_world(config, 4); }), HasSubstr("8 is not 2 a rank * 2"));
}

}  // namespace
}  // namespace shoal
