#include "config/settings.h"

#include <gtest/gtest.h>

namespace shoal::config {

TEST(Settings, WhatWasWrittenComesBeforeTheDefault) {
  Settings settings(table());
  EXPECT_EQ(settings.value("zero_optimization.stage"), Value(0));
  EXPECT_EQ(settings.given("zero_optimization.stage"), nullptr);
  settings.set("zero_optimization.stage", {Value(2), {4, 1}, false});
  EXPECT_EQ(settings.value("zero_optimization.stage"), Value(2));
  EXPECT_EQ(settings.given("zero_optimization.stage")->mark.line, 4);
  EXPECT_EQ(settings.fallback("zero_optimization.stage"), Value(0));
}

TEST(Settings, DefaultsOfParametersFollowTheType) {
  Settings settings(table());
  settings.set("optimizer.type", {Value("Adagrad"), {}, false});
  EXPECT_EQ(settings.value("optimizer.params.lr"), Value(1e-2));
  const Section& params = *table().section("optimizer.params");
  EXPECT_TRUE(settings.applies(params, *table().key("optimizer.params.eps")));
  EXPECT_FALSE(settings.applies(params, *table().key("optimizer.params.betas")));
  EXPECT_FALSE(settings.applies(*table().section("scheduler.params"), *table().key("scheduler.params.warmup_type")));
}

TEST(Settings, AMistakenKeyCannotBeBuiltUpon) {
  Settings settings(table());
  settings.mark_mistaken("zero_optimization.stage");
  EXPECT_THROW(settings.value("zero_optimization.stage"), DependsOnMistake);
}

}  // namespace shoal::config
