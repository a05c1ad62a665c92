#include "kernels/convert.h"

#include <gtest/gtest.h>

#include "unit/kernels/awkward.h"

namespace shoal::kernels {
namespace {

class ConvertIsa : public EveryIsa {};

TEST_P(ConvertIsa, ConvertAndAddEqualTheReferenceToTheBit) {
  for (DType in_dtype : kDtypes) {
    for (DType out_dtype : kDtypes) {
      for (int64_t numel : kNumels) {
        for (int64_t offset : kOffsets) {
          SCOPED_TRACE(::testing::Message() << name_of(in_dtype) << " to " << name_of(out_dtype) << ", " << numel
                                            << " elements at " << offset);
          Elements in(in_dtype, offset, numel, 1), expected(out_dtype, offset / 2, numel, 2), actual = expected;
          reference_.convert.convert(in.data(), in_dtype, expected.data(), out_dtype, numel);
          tested_->convert.convert(in.data(), in_dtype, actual.data(), out_dtype, numel);
          ASSERT_TRUE(same(expected, actual));
          reference_.convert.add(in.data(), in_dtype, expected.data(), out_dtype, numel);
          tested_->convert.add(in.data(), in_dtype, actual.data(), out_dtype, numel);
          ASSERT_TRUE(same(expected, actual));
        }
      }
    }
  }
}

TEST_P(ConvertIsa, EveryF16AndBf16ValueConvertsLikeTheReference) {
  constexpr int64_t kCount = 65536;
  std::vector<uint16_t> every(kCount);
  for (int64_t i = 0; i < kCount; ++i) every[i] = static_cast<uint16_t>(i);
  for (DType in_dtype : {DType::bf16, DType::f16}) {
    for (DType out_dtype : kDtypes) {
      Elements expected(out_dtype, 0, kCount, 3), actual = expected;
      reference_.convert.convert(every.data(), in_dtype, expected.data(), out_dtype, kCount);
      tested_->convert.convert(every.data(), in_dtype, actual.data(), out_dtype, kCount);
      EXPECT_TRUE(same(expected, actual)) << name_of(in_dtype) << " to " << name_of(out_dtype);
    }
  }
}

TEST_P(ConvertIsa, RoundsAllAroundTheMiddlesOfNeighbours) {
  // For every fp16 value the fp32 numbers at, just below and just above the middle to its successor.
  std::vector<float> middles;
  for (uint32_t half = 0; half < 65536; ++half) {
    const float value = from_f16(static_cast<uint16_t>(half));
    const float next = from_f16(static_cast<uint16_t>(half + 1));
    const float middle = std::isfinite(value) && std::isfinite(next) ? (value + next) / 2 : value;
    for (int step = -1; step <= 1; ++step) middles.push_back(float_of(bits_of(middle) + static_cast<uint32_t>(step)));
  }
  const int64_t numel = static_cast<int64_t>(middles.size());
  for (DType out_dtype : {DType::bf16, DType::f16}) {
    Elements expected(out_dtype, 0, numel, 4), actual = expected;
    reference_.convert.convert(middles.data(), DType::f32, expected.data(), out_dtype, numel);
    tested_->convert.convert(middles.data(), DType::f32, actual.data(), out_dtype, numel);
    EXPECT_TRUE(same(expected, actual)) << "to " << name_of(out_dtype);
  }
}

TEST_P(ConvertIsa, SplitAndJoinEqualTheReferenceAndGiveBackTheMaster) {
  for (int64_t numel : kNumels) {
    for (int64_t offset : kOffsets) {
      SCOPED_TRACE(::testing::Message() << numel << " elements at " << offset);
      Elements master(DType::f32, offset, numel, 7), back(DType::f32, 1, numel, 8), back_expected = back;
      Elements weight(DType::bf16, offset, numel, 9), weight_expected = weight;
      Elements rest(DType::bf16, 2, numel, 10), rest_expected = rest;
      reference_.convert.split(master.floats(), weight_expected.data(), rest_expected.data(), numel);
      tested_->convert.split(master.floats(), weight.data(), rest.data(), numel);
      for (int64_t i = 0; i < weight.count(); ++i) ASSERT_EQ(weight.bits(i), weight_expected.bits(i)) << i;
      for (int64_t i = 0; i < rest.count(); ++i) ASSERT_EQ(rest.bits(i), rest_expected.bits(i)) << i;
      reference_.convert.join(weight.data(), rest.data(), back_expected.floats(), numel);
      tested_->convert.join(weight.data(), rest.data(), back.floats(), numel);
      for (int64_t i = 0; i < back.count(); ++i) ASSERT_EQ(back.bits(i), back_expected.bits(i)) << i;
      for (int64_t i = 0; i < numel; ++i) {
        ASSERT_EQ(bits_of(back.floats()[i]),
                  std::isnan(master.floats()[i]) ? 0x7fc00000u : bits_of(master.floats()[i]));
      }
    }
  }
}

// Weights that somebody wrote, beside the remainders of what stood there.
TEST_P(ConvertIsa, JoinsHalvesThatNoSplitHasMadeAsTheReference) {
  for (int64_t numel : kNumels) {
    Elements weight(DType::bf16, 1, numel, 11), rest(DType::bf16, 3, numel, 12);
    for (int64_t i = 0; i < numel; i += 3) {
      static_cast<uint16_t*>(weight.data())[i] = i % 2 == 0 ? 0x0000 : 0x8000;
      static_cast<uint16_t*>(rest.data())[i] = static_cast<uint16_t>(0x7ffe + i % 5);
    }
    Elements whole(DType::f32, 2, numel, 13), expected = whole;
    reference_.convert.join(weight.data(), rest.data(), expected.floats(), numel);
    tested_->convert.join(weight.data(), rest.data(), whole.floats(), numel);
    for (int64_t i = 0; i < whole.count(); ++i) ASSERT_EQ(whole.bits(i), expected.bits(i)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(, ConvertIsa, ::testing::Values(Isa::neon, Isa::avx2, Isa::avx512), isa_test_name);

TEST(Convert, PublicDoorsRunTheActiveVersion) {
  float x[3] = {1.0f, 0.333333f, -2.5f}, back[3] = {};
  uint16_t weight[3], rest[3], half[3];
  split(x, weight, rest, 3);
  join(weight, rest, back, 3);
  EXPECT_EQ(std::memcmp(x, back, sizeof x), 0);
  convert(x, DType::f32, half, DType::f16, 3);
  add(half, DType::f16, back, DType::f32, 3);
  EXPECT_EQ(back[2], -5.0f);
}

}  // namespace
}  // namespace shoal::kernels
