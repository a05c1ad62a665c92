#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

TEST(Fp8Section, IsOffUnlessAskedFor) {
  EXPECT_EQ(parse_members("").fp8, Fp8Config());
  EXPECT_FALSE(Fp8Config().enabled);
}

TEST(Fp8Section, ReadsItsKeys) {
  EXPECT_EQ(parse_members(R"("bf16": {"enabled": true}, "fp8": {"enabled": true, "recipe": "rowwise"})").fp8,
            (Fp8Config{true, Fp8Recipe::rowwise}));
  EXPECT_EQ(parse_members(R"("fp8": {"enabled": false, "recipe": "tensorwise"})").fp8, Fp8Config());
}

TEST(Fp8Section, ReadsBackToTheSameConfig) {
  const Config config = parse_members(R"("bf16": {"enabled": true}, "fp8": {"enabled": true, "recipe": "rowwise"})");
  EXPECT_EQ(Config::from_text(config.to_json()), config);
}

TEST(Fp8Section, WantsBf16BesideIt) {
  EXPECT_THAT(mistakes_of(R"("fp8": {"enabled": true})"), ::testing::HasSubstr("bf16.enabled is false"));
  EXPECT_THAT(mistakes_of(R"("fp16": {"enabled": true}, "fp8": {"enabled": true})"),
              ::testing::HasSubstr("bf16.enabled is false"));
}

TEST(Fp8Section, RefusesAnUnknownRecipe) {
  EXPECT_THAT(mistakes_of(R"("fp8": {"recipe": "blockwise"})"), ::testing::HasSubstr("tensorwise, rowwise"));
}

}  // namespace shoal::config
