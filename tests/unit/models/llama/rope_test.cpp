#include "models/llama/rope.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace shoal::models {

TEST(RopeFrequencies, FallFromOneToTheBase) {
  const std::vector<float> frequencies = rope_frequencies({.theta = 10000}, 8);
  ASSERT_EQ(frequencies.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(frequencies[i], std::pow(10000.0, -static_cast<double>(i) / 4), 1e-7);
  }
}

TEST(RopeFrequencies, Llama3KeepsFastTurnsAndSlowsSlowOnes) {
  const RopeConfig plain = {.theta = 500000};
  const RopeConfig scaled = {.theta = 500000, .scaling = Llama3Scaling{}};
  const std::vector<float> before = rope_frequencies(plain, 128);
  const std::vector<float> after = rope_frequencies(scaled, 128);
  bool between = false;
  for (size_t i = 0; i < before.size(); ++i) {
    const double wavelength = 2 * M_PI / before[i];
    if (wavelength < 8192.0 / 4) {
      EXPECT_EQ(after[i], before[i]);
    } else if (wavelength > 8192.0) {
      EXPECT_FLOAT_EQ(after[i], before[i] / 8);
    } else {
      between = true;
      EXPECT_LT(after[i], before[i]);
      EXPECT_GT(after[i], before[i] / 8);
    }
  }
  EXPECT_TRUE(between);
  EXPECT_LT(after.back(), before.back());
}

TEST(Rotate, KeepsLengthsAndMakesProductsDependOnDistanceOnly) {
  const int64_t time = 6, dim = 8;
  const RopeTable table = make_rope_table(rope_frequencies({}, dim), time, at::kFloat);
  const at::Tensor x = at::arange(dim, at::kFloat).sin().expand({1, 1, time, dim});
  const at::Tensor y = at::arange(dim, at::kFloat).cos().expand({1, 1, time, dim});
  const at::Tensor a = rotate(x, table.cos, table.sin)[0][0];
  const at::Tensor b = rotate(y, table.cos, table.sin)[0][0];
  const auto dot = [&](int64_t i, int64_t j) { return a[i].dot(b[j]).item<double>(); };
  EXPECT_NEAR(a[5].norm().item<double>(), x[0][0][5].norm().item<double>(), 1e-5);
  EXPECT_NEAR(dot(1, 3), dot(3, 5), 1e-5);
  EXPECT_GT(std::abs(dot(1, 3) - dot(1, 4)), 1e-3);
  EXPECT_TRUE(a[0].equal(x[0][0][0]));  // position 0 does not turn
}

TEST(Rotate, TurnsDimensionIWithIPlusHalf) {
  const RopeTable table = make_rope_table({1.0f, 0.0f}, 2, at::kFloat);
  const at::Tensor x = at::tensor({1.0f, 2.0f, 0.0f, 3.0f}).expand({1, 1, 2, 4});
  const at::Tensor turned = rotate(x, table.cos, table.sin)[0][0][1];
  EXPECT_NEAR(turned[0].item<double>(), std::cos(1.0), 1e-6);
  EXPECT_NEAR(turned[2].item<double>(), std::sin(1.0), 1e-6);
  EXPECT_EQ(turned[1].item<float>(), 2.0f);
  EXPECT_EQ(turned[3].item<float>(), 3.0f);
}

TEST(RopeTable, IsInTheAskedDtype) {
  EXPECT_EQ(make_rope_table({1.0f}, 3, at::kBFloat16).sin.scalar_type(), at::kBFloat16);
}

}  // namespace shoal::models
