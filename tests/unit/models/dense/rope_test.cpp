#include "models/dense/rope.h"

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

TEST(RopeFrequencies, LinearScalingSlowsAllTurns) {
  const std::vector<float> plain = rope_frequencies({}, 8), slow = rope_frequencies({.linear_factor = 4}, 8);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(slow[i], plain[i] / 4);
}

TEST(RopeFrequencies, APartOfAHeadTurnsAsAHeadOfThatWidth) {
  EXPECT_EQ(rope_frequencies({.partial = 0.25}, 32), rope_frequencies({}, 8));
}

TEST(RopeFrequencies, YarnKeepsFastTurnsAndStretchesSlowOnes) {
  const RopeConfig config = {.yarn = YarnScaling{.factor = 4, .original_max_positions = 4096}};
  const std::vector<float> plain = rope_frequencies({}, 128), yarn = rope_frequencies(config, 128);
  EXPECT_EQ(yarn.front(), plain.front());
  EXPECT_FLOAT_EQ(yarn.back(), plain.back() / 4);
  for (size_t i = 1; i < yarn.size(); ++i) EXPECT_LT(yarn[i], yarn[i - 1]);
}

// Of transformers 5.17: ROPE_INIT_FUNCTIONS["yarn"](LlamaConfig(hidden_size=512, num_attention_heads=4,
// max_position_embeddings=16384, rope_parameters={"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0,
// "original_max_position_embeddings": 4096, ...}), "cpu")[0] of these pairs. Those from 21 to 46 lie on the ramp.
TEST(RopeFrequencies, YarnTurnsAsTransformersDoesOnTheRamp) {
  struct Case {
    YarnScaling yarn;
    std::vector<float> wanted;
  };
  const std::vector<size_t> pairs = {0, 16, 20, 24, 28, 32, 36, 40, 44, 48, 63};
  const std::vector<Case> cases = {
      {{.factor = 4, .original_max_positions = 4096},
       {1.0f, 0.100000001f, 0.0562341288f, 0.0279739965f, 0.0136790723f, 0.00653846189f, 0.00302799162f, 0.00133788679f,
        0.000547162897f, 0.000250000012f, 2.88695483e-05f}},
      {{.factor = 4, .original_max_positions = 4096, .truncate = false},
       {1.0f, 0.100000001f, 0.0562341288f, 0.0286136102f, 0.0138753708f, 0.006556971f, 0.00298673427f, 0.00128563191f,
        0.000501439616f, 0.000250000012f, 2.88695483e-05f}},
      {{.factor = 4, .beta_fast = 16, .beta_slow = 2, .original_max_positions = 4096},
       {1.0f, 0.100000001f, 0.0562341288f, 0.0316227786f, 0.0152820889f, 0.00671874965f, 0.00272384076f,
        0.000938801211f, 0.000444569858f, 0.000250000012f, 2.88695483e-05f}}};
  for (const Case& each : cases) {
    const std::vector<float> got = rope_frequencies({.yarn = each.yarn}, 128);
    ASSERT_EQ(got.size(), 64u);
    for (size_t i = 0; i < pairs.size(); ++i) {
      EXPECT_NEAR(got[pairs[i]] / each.wanted[i], 1, 1e-6) << "pair " << pairs[i];
    }
  }
}

TEST(RopeFrequencies, DynamicScalingBeginsBehindTheModelsLength) {
  const RopeConfig config = {.dynamic = DynamicScaling{.factor = 2, .max_positions = 16}};
  EXPECT_EQ(rope_frequencies(config, 8, 16), rope_frequencies({}, 8));
  const std::vector<float> longer = rope_frequencies(config, 8, 32);
  EXPECT_EQ(longer.front(), 1);
  EXPECT_LT(longer.back(), rope_frequencies({}, 8).back());
  EXPECT_LT(rope_frequencies(config, 8, 48).back(), longer.back());
}

TEST(RopeFrequencies, LongRopeChoosesByTheLength) {
  const RopeConfig config = {
      .longrope =
          LongScaling{.short_factors = {1, 1, 1, 1}, .long_factors = {2, 4, 8, 16}, .original_max_positions = 16}};
  const std::vector<float> plain = rope_frequencies({}, 8), longer = rope_frequencies(config, 8, 17);
  EXPECT_EQ(rope_frequencies(config, 8, 16), plain);
  for (size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(longer[i], plain[i] / static_cast<float>(2 << i));
}

TEST(RopeTables, FollowALengthThatTurnsOtherwise) {
  const RopeConfig config = {.dynamic = DynamicScaling{.factor = 2, .max_positions = 4}};
  const RopeTables tables(config, 8);
  for (const int64_t time : {8, 4, 6, 8, 3}) {
    const ops::RotaryTable wanted = make_rope_table(rope_frequencies(config, 8, time), time, at::kFloat);
    EXPECT_TRUE(tables.table(time, at::empty({1})).sin.equal(wanted.sin)) << time;
  }
}

TEST(RopeTables, AreScaledByTheAttentionFactor) {
  const RopeConfig config = {.yarn = YarnScaling{.factor = 1, .attention_factor = 2, .original_max_positions = 64}};
  const RopeTables tables(config, 8);
  EXPECT_EQ(tables.table(1, at::empty({1})).cos[0][0].item<float>(), 2);
}

TEST(RopeTable, IsInTheAskedDtype) {
  EXPECT_EQ(make_rope_table({1.0f}, 3, at::kBFloat16).sin.scalar_type(), at::kBFloat16);
}

TEST(RopeTables, GiveWhatTheLengthAloneWouldGive) {
  const std::vector<float> frequencies = rope_frequencies({}, 8);
  const RopeTables tables({}, 8);
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

TEST(RopeTables, StayInFp32WhereAFamilyTurnsInIt) {
  const RopeTables tables({.turns_in_fp32 = true}, 8);
  const ops::RotaryTable given = tables.table(9, at::empty({1}, at::kBFloat16));
  EXPECT_TRUE(given.sin.equal(make_rope_table(rope_frequencies({}, 8), 9, at::kFloat).sin));
}

TEST(RopeTables, AreMadeOnceForALength) {
  const RopeTables tables({}, 8);
  const at::Tensor x = at::empty({1});
  const void* first = tables.table(9, x).cos.const_data_ptr();
  EXPECT_EQ(tables.table(4, x).cos.const_data_ptr(), first);
  EXPECT_EQ(tables.table(9, x).cos.const_data_ptr(), first);
}

}  // namespace shoal::models
