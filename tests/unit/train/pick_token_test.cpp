#include "train/pick_token.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace shoal::train {
namespace {

TEST(PickToken, AtZeroTakesTheFirstOfTheLikeliest) {
  EXPECT_EQ(pick_token(std::vector<float>{1, 3, 3, 2}, 0, 0.99), 1);
  EXPECT_EQ(pick_token(std::vector<float>{-5}, 0, 0.0), 0);
}

TEST(PickToken, DrawsByProbability) {
  const std::vector<float> logits = {std::log(1.0f), std::log(2.0f), std::log(1.0f)};
  for (const auto& [even, token] :
       std::vector<std::pair<double, int64_t>>{{0.0, 0}, {0.24, 0}, {0.26, 1}, {0.74, 1}, {0.76, 2}, {0.999999, 2}}) {
    EXPECT_EQ(pick_token(logits, 1, even), token) << even;
  }
}

TEST(PickToken, ALowTemperatureSharpensAndLargeLogitsDoNotOverflow) {
  const std::vector<float> logits = {1000, 1001};
  EXPECT_EQ(pick_token(logits, 1, 0.26), 0) << "1 / (1 + e) = 0.269";
  EXPECT_EQ(pick_token(logits, 0.1, 0.26), 1);
}

}  // namespace
}  // namespace shoal::train
