// The scalar conversions against arithmetic in fp64 that knows nothing of bit patterns.
#include <gtest/gtest.h>

#include "unit/kernels/awkward.h"

namespace shoal::kernels {
namespace {

struct Format {
  int fraction_bits;
  int least_exponent;  // of a normal number
  double greatest;
};
constexpr Format kF16{10, -14, 65504.0};
const Format kBf16{7, -126, std::ldexp(255.0, 120)};

// Nearest multiple of the format's spacing at x, ties to even (the rounding mode of nearbyint), else infinity.
double nearest(double x, const Format& format) {
  if (x == 0 || std::isinf(x)) return x;
  const int exponent = std::max(std::ilogb(x), format.least_exponent) - format.fraction_bits;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(x, -exponent)), exponent);
  return std::abs(rounded) > format.greatest ? std::copysign(INFINITY, x) : rounded;
}

double value_of_f16(int bits) {
  const int exponent = (bits >> 10) & 31;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(bits & 0x3ff, -24);
  if (exponent == 31) return (bits & 0x3ff) ? NAN : sign * INFINITY;
  return sign * std::ldexp(1024 + (bits & 0x3ff), exponent - 25);
}

TEST(ConvertReference, ReadsEveryF16Value) {
  for (int bits = 0; bits < 65536; ++bits) {
    const double expected = value_of_f16(bits);
    const float actual = from_f16(static_cast<uint16_t>(bits));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(actual)) << bits;
    } else {
      ASSERT_EQ(expected, actual) << bits;
      ASSERT_EQ(std::signbit(expected), std::signbit(actual)) << bits;
      ASSERT_EQ(to_f16(actual), bits);
      ASSERT_EQ(to_bf16(from_bf16(static_cast<uint16_t>(bits))) & 0xffbf, bits & 0xffbf);
    }
  }
}

TEST(ConvertReference, RoundsToNearestEven) {
  std::mt19937 random(5);
  for (int i = 0; i < 400000; ++i) {
    // Every second value lies at, or one step beside, the middle of two fp16 neighbours.
    uint32_t bits = bits_of(awkward_float(random));
    if (i % 2 == 1) bits = (bits & 0xffffe000u) + 0x1000u + random() % 3 - 1;
    const float x = float_of(bits);
    if (std::isnan(x)) {
      ASSERT_TRUE(std::isnan(from_f16(to_f16(x))));
      ASSERT_TRUE(std::isnan(from_bf16(to_bf16(x))));
      continue;
    }
    ASSERT_EQ(from_f16(to_f16(x)), nearest(x, kF16)) << std::hexfloat << x;
    ASSERT_EQ(from_bf16(to_bf16(x)), nearest(x, kBf16)) << std::hexfloat << x;
    ASSERT_EQ(std::signbit(from_f16(to_f16(x))), std::signbit(x));
  }
}

TEST(ConvertReference, SplitAndJoinGiveBackEveryValue) {
  // All low halves under high halves at the edges of what carries can reach.
  for (uint32_t high :
       {0x0000u, 0x0001u, 0x3f7fu, 0x3f80u, 0x7f7fu, 0x7f80u, 0x7fc0u, 0x7fffu, 0x8000u, 0xbfffu, 0xffffu}) {
    for (uint32_t low = 0; low < 65536; ++low) {
      const float master = float_of(high << 16 | low);
      const uint32_t wanted = std::isnan(master) ? 0x7fc00000u : high << 16 | low;
      ASSERT_EQ(bits_of(join_master(split_weight(master), split_remainder(master))), wanted);
      ASSERT_EQ(std::isnan(from_bf16(split_weight(master))), std::isnan(master)) << std::hex << high << low;
      ASSERT_EQ(split_weight(master), high_half(master));
      ASSERT_EQ(split_remainder(master), low_half(master));
      ASSERT_EQ(bits_of(whole_of(high_half(master), low_half(master))), wanted);
    }
  }
}

// As `weight.zero_()` leaves it, which does not know the remainder.
TEST(ConvertReference, AZeroThatWasWrittenIntoAWeightIsItsMaster) {
  for (uint32_t low = 0; low < 65536; ++low) {
    const uint32_t left = low < 0x8000u ? low : 0;  // a master of its own, far below what bf16 has
    for (const uint32_t zero : {0x0000u, 0x8000u}) {
      ASSERT_EQ(bits_of(join_master(zero, low)), zero << 16 | left);
      ASSERT_EQ(bits_of(whole_of(zero, low)), zero << 16 | left);
    }
  }
}

TEST(ConvertReference, SplitWeightIsTheNearestBf16) {
  std::mt19937 random(6);
  for (int i = 0; i < 100000; ++i) {
    const float x = awkward_float(random);
    if (!std::isfinite(x)) continue;
    const double error = std::abs(double(from_bf16(split_weight(x))) - x);
    const double least = std::abs(nearest(x, kBf16) - x);
    if (std::isinf(least)) continue;
    ASSERT_EQ(error, least) << std::hexfloat << x;  // a tie is as near on either side
  }
}

}  // namespace
}  // namespace shoal::kernels
