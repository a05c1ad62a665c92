#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

TEST(DataTypes, ReadsTheAccumulationDtype) {
  EXPECT_EQ(parse_members(R"("data_types": {"grad_accum_dtype": "bfloat16"})").grad_accum_dtype, DType::bf16);
  EXPECT_EQ(parse_members(R"("data_types": {"grad_accum_dtype": null})").grad_accum_dtype, std::nullopt);
}

TEST(DataTypes, ParamDtypeMustAgreeWithTheEnabledPrecision) {
  EXPECT_EQ(mistakes_of(R"("data_types": {"param_dtype": "bf16"}, "bf16": {"enabled": true})"), "");
  EXPECT_EQ(mistakes_of(R"("data_types": {"param_dtype": "fp32"})"), "");
  EXPECT_EQ(mistakes_of(R"("data_types": {"param_dtype": "bf16"})"),
            "[line 1, data_types.param_dtype] \"bf16\" contradicts the enabled precision, fp32. Remove the key, or "
            "switch bf16 on.");
  EXPECT_EQ(mistakes_of(R"("data_types": {"param_dtype": "fp32"}, "fp16": {"enabled": true})"),
            "[line 1, data_types.param_dtype] \"fp32\" contradicts the enabled precision, fp16. Remove the key, or "
            "switch fp16 "
            "and bf16 off.");
}

}  // namespace shoal::config
