#include "kernels/counter_random.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

namespace shoal::kernels {

using Words4 = std::array<uint32_t, 4>;

// The known answers that come with the authors' Random123 library.
TEST(Philox, GivesThePublishedKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t all = 0xffffffff;
  EXPECT_EQ(philox({all, all, all, all}, {all, all}), (Words4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(FillNormal, AnyRangeGivesTheBitsOfTheWhole) {
  const uint64_t key = stream_key(7, "model.norm.weight");
  std::vector<float> whole(101);
  fill_normal(key, 0.02, 0, 101, whole.data());
  for (int64_t begin = 0; begin <= 101; ++begin) {
    for (const int64_t numel : {0, 1, 2, 3, 5, 8, 50}) {
      if (begin + numel > 101) continue;
      std::vector<float> part(static_cast<size_t>(numel));
      fill_normal(key, 0.02, begin, numel, part.data());
      EXPECT_EQ(part, std::vector<float>(whole.begin() + begin, whole.begin() + begin + numel))
          << begin << " " << numel;
    }
  }
}

TEST(FillUniform, AnyRangeGivesTheBitsOfTheWholeWithinTheBound) {
  const uint64_t key = stream_key(7, "a");
  std::vector<float> whole(4001);
  fill_uniform(key, 0.25, 0, 4001, whole.data());
  for (int64_t begin = 0; begin <= 9; ++begin) {
    for (const int64_t numel : {0, 1, 2, 3, 5, 8, 50}) {
      std::vector<float> part(static_cast<size_t>(numel));
      fill_uniform(key, 0.25, begin, numel, part.data());
      EXPECT_EQ(part, std::vector<float>(whole.begin() + begin, whole.begin() + begin + numel));
    }
  }
  double sum = 0, squares = 0;
  for (const float value : whole) {
    EXPECT_LE(std::abs(value), 0.25F);
    sum += value;
    squares += double{value} * value;
  }
  EXPECT_NEAR(sum / 4001, 0, 0.01);
  EXPECT_NEAR(squares / 4001, 0.25 * 0.25 / 3, 0.001);
}

TEST(FillNormal, ReachesElementsBeyondFourGiga) {
  std::vector<float> near(8);
  std::vector<float> far(8);
  fill_normal(1, 1.0, 0, 8, near.data());
  fill_normal(1, 1.0, int64_t{1} << 34, 8, far.data());
  EXPECT_NE(near, far);
}

TEST(FillNormal, HasTheMomentsOfANormalDistribution) {
  std::vector<float> values(200'000);
  fill_normal(stream_key(0, "w"), 0.5, 0, 200'000, values.data());
  double sum = 0, squares = 0, fourths = 0, neighbours = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = values[i] / 0.5;
    sum += value;
    squares += value * value;
    fourths += value * value * value * value;
    if (i > 0) neighbours += value * values[i - 1] / 0.5;
  }
  const double count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 0, 0.01);
  EXPECT_NEAR(squares / count, 1, 0.015);
  EXPECT_NEAR(fourths / count, 3, 0.1);
  EXPECT_NEAR(neighbours / count, 0, 0.01);
}

TEST(FillNormal, IsBoxMullerOfTheGenerator) {
  const uint64_t key = stream_key(1, "w");
  std::vector<float> values(4000);
  fill_normal(key, 1.0, 0, 4000, values.data());
  for (uint32_t block = 0; block < 1000; ++block) {
    const Words4 bits = philox({block, 0, 0, 0}, {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
    for (size_t pair = 0; pair < 2; ++pair) {
      const double radius = std::sqrt(-2 * std::log((bits[2 * pair] + 0.5) * 0x1p-32));
      const double angle = 2 * M_PI * (bits[2 * pair + 1] * 0x1p-32);
      ASSERT_NEAR(values[4 * block + 2 * pair], radius * std::cos(angle), 1e-6);
      ASSERT_NEAR(values[4 * block + 2 * pair + 1], radius * std::sin(angle), 1e-6);
    }
  }
}

// Written down once: another compiler, processor or library must not begin a run with other weights.
TEST(FillNormal, GivesTheBitsItAlwaysGave) {
  std::vector<float> values(6);
  fill_normal(stream_key(0, "model.embed_tokens.weight"), 0.02, 1'000'000, 6, values.data());
  std::string text;
  for (const float value : values) text += fmt::format("{:08x} ", std::bit_cast<uint32_t>(value));
  EXPECT_EQ(text, "bc7117c9 3cd3bb34 3c06b04d 3d090043 3c8091fc bbbd1e73 ");
}

TEST(StreamKey, DiffersBySeedAndByName) {
  EXPECT_EQ(stream_key(1, "a"), stream_key(1, "a"));
  EXPECT_NE(stream_key(1, "a"), stream_key(2, "a"));
  EXPECT_NE(stream_key(1, "a"), stream_key(1, "b"));
}

}  // namespace shoal::kernels
