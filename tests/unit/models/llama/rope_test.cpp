#include "models/llama/rope.h"

#include <ATen/ops/empty.h>
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

TEST(RopeTable, IsInTheAskedDtype) {
  EXPECT_EQ(make_rope_table({1.0f}, 3, at::kBFloat16).sin.scalar_type(), at::kBFloat16);
}

TEST(RopeTables, GiveWhatTheLengthAloneWouldGive) {
  const std::vector<float> frequencies = rope_frequencies({}, 8);
  const RopeTables tables(frequencies);
  for (const int64_t time : {5, 9, 3, 9, 1}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const ops::RotaryTable given = tables.table(time, at::empty({1}, dtype));
      const ops::RotaryTable wanted = make_rope_table(frequencies, time, dtype);
      EXPECT_EQ(given.cos.scalar_type(), dtype);
      EXPECT_TRUE(given.cos.equal(wanted.cos)) << time;
      EXPECT_TRUE(given.sin.equal(wanted.sin)) << time;
    }
  }
}

TEST(RopeTables, AreMadeOnceForALength) {
  const RopeTables tables(rope_frequencies({}, 8));
  const at::Tensor x = at::empty({1});
  const void* first = tables.table(9, x).cos.const_data_ptr();
  EXPECT_EQ(tables.table(4, x).cos.const_data_ptr(), first);
  EXPECT_EQ(tables.table(9, x).cos.const_data_ptr(), first);
}

}  // namespace shoal::models
