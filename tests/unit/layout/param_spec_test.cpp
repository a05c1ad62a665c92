#include "layout/param_spec.h"

#include <gtest/gtest.h>

namespace shoal {

TEST(ParamSpec, NumelOfScalarsAndEmptyShapes) {
  EXPECT_EQ((ParamSpec{"scalar", {}}).numel(), 1);
  EXPECT_EQ((ParamSpec{"empty", {3, 0}}).numel(), 0);
  EXPECT_EQ((ParamSpec{"matrix", {3, 5}}).numel(), 15);
}

TEST(ParamSpec, TextTellsEveryDifferenceThatMatters) {
  const std::vector<UnitSpec> units = {{"u", {{"w", {2, 3}, DType::bf16, true, 1}}, {}}};
  EXPECT_EQ(to_text(units), "unit u borrows []\n  w [2, 3] bf16 trainable group 1\n");
  std::vector<UnitSpec> other = units;
  other[0].params[0].trainable = false;
  EXPECT_NE(to_text(units), to_text(other));
}

}  // namespace shoal
