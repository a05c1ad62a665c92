#include "config/key.h"

#include <gtest/gtest.h>

namespace shoal::config {

TEST(Key, ANullDefaultMakesItNullable) {
  EXPECT_TRUE(integer("x", Value()).nullable);
  EXPECT_FALSE(integer("x", 1).nullable);
  EXPECT_FALSE(integer("x", Value()).is_required().nullable);
}

TEST(Key, TheDefaultMayDependOnTheType) {
  const Key key = number("lr", 1.0).of_types({{"SGD", 2.0}, {"Lion", Value()}});
  EXPECT_EQ(*key.fallback_of("SGD"), Value(2.0));
  EXPECT_TRUE(key.fallback_of("Lion")->is_null());
  EXPECT_EQ(key.fallback_of("AdamW"), nullptr);
  EXPECT_EQ(*number("x", 1.0).fallback_of("anything"), Value(1.0));
}

}  // namespace shoal::config
