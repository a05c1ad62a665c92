#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

TEST(Bf16, BothNamesOfTheSectionWork) {
  EXPECT_EQ(parse_members(R"("bf16": {"enabled": true})").precision, Precision::bf16);
  EXPECT_EQ(parse_members(R"("bfloat16": {"enabled": true})").precision, Precision::bf16);
  EXPECT_EQ(parse_members(R"("bf16": {"enabled": false})").precision, Precision::fp32);
}

TEST(Bf16, ExcludesFp16) {
  EXPECT_EQ(mistakes_of(R"("bf16": {"enabled": true}, "fp16": {"enabled": true})"),
            "[line 1, bf16.enabled] true, and fp16.enabled is true as well. Switch one of them off.");
}

TEST(Bf16, LossyStatesAreRefused) {
  EXPECT_EQ(mistakes_of(R"("bf16": {"enabled": true, "bf16_optimizer_states": true})"),
            "[line 1, bf16.bf16_optimizer_states] true is not supported yet. Remove the key or set it to false.");
}

}  // namespace shoal::config
