#include "kernels/cuda/convert.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "cuda/kernels/kernel_test.h"

namespace shoal::kernels {
namespace {

class CudaConvert : public KernelOnGpu {
 protected:
  void expect_convert_and_add_equal(DType in_dtype, int64_t in_offset, DType out_dtype, int64_t out_offset,
                                    int64_t numel) {
    SCOPED_TRACE(::testing::Message() << name_of(in_dtype) << " at " << in_offset << " to " << name_of(out_dtype)
                                      << " at " << out_offset << ", " << numel << " elements");
    Elements in(in_dtype, in_offset, numel, 1), expected(out_dtype, out_offset, numel, 2);
    const Copy device_in(*this, in, numel), device_out(*this, expected, numel);
    reference_.convert.convert(in.data(), in_dtype, expected.data(), out_dtype, numel);
    cuda::convert(device_in.data(), in_dtype, device_out.data(), out_dtype, numel, nullptr);
    ASSERT_TRUE(same(expected, device_out.now()));
    reference_.convert.add(in.data(), in_dtype, expected.data(), out_dtype, numel);
    cuda::add(device_in.data(), in_dtype, device_out.data(), out_dtype, numel, nullptr);
    ASSERT_TRUE(same(expected, device_out.now())) << "adding";
    ASSERT_TRUE(same(in, device_in.now())) << "in the input";
    reset();
  }
};

TEST_F(CudaConvert, ConvertAndAddEqualTheReferenceToTheBit) {
  for (DType in_dtype : kDtypes) {
    for (DType out_dtype : kDtypes) {
      for (int64_t numel : device_numels()) {
        for (int64_t offset : kEveryOffset) {
          // Alike, as parameters in flats lie, and apart.
          for (int64_t out_offset : {offset, (offset + 1 + numel % 3) % 4}) {
            ASSERT_NO_FATAL_FAILURE(expect_convert_and_add_equal(in_dtype, offset, out_dtype, out_offset, numel));
          }
        }
      }
    }
  }
}

TEST_F(CudaConvert, AMillionElementsEqualTheReference) {
  if (tests_are_small()) GTEST_SKIP() << "SHOAL_TEST_SIZE=small";
  for (DType in_dtype : kDtypes) {
    for (DType out_dtype : kDtypes) {
      ASSERT_NO_FATAL_FAILURE(expect_convert_and_add_equal(in_dtype, 3, out_dtype, 3, 1'000'003));
      ASSERT_NO_FATAL_FAILURE(expect_convert_and_add_equal(in_dtype, 0, out_dtype, 1, 1'000'003));
    }
  }
}

TEST_F(CudaConvert, EveryF16AndBf16ValueConvertsLikeTheReference) {
  constexpr int64_t kCount = 65536;
  std::vector<uint16_t> every(kCount);
  for (int64_t i = 0; i < kCount; ++i) every[static_cast<size_t>(i)] = static_cast<uint16_t>(i);
  const uint16_t* device_every = take_copy(every);
  for (DType in_dtype : {DType::bf16, DType::f16}) {
    for (DType out_dtype : kDtypes) {
      Elements expected(out_dtype, 0, kCount, 3);
      const Copy actual(*this, expected, kCount);
      reference_.convert.convert(every.data(), in_dtype, expected.data(), out_dtype, kCount);
      cuda::convert(device_every, in_dtype, actual.data(), out_dtype, kCount, nullptr);
      EXPECT_TRUE(same(expected, actual.now())) << name_of(in_dtype) << " to " << name_of(out_dtype);
    }
  }
}

TEST_F(CudaConvert, RoundsAllAroundTheMiddlesOfNeighbours) {
  // For every fp16 and bf16 value the fp32 numbers at, just below and just above the middle to its successor.
  std::vector<float> middles;
  for (float (*from)(uint16_t) : {from_f16, from_bf16}) {
    for (uint32_t half = 0; half < 65536; ++half) {
      const float value = from(static_cast<uint16_t>(half)), next = from(static_cast<uint16_t>(half + 1));
      const float middle = std::isfinite(value) && std::isfinite(next) ? value / 2 + next / 2 : value;
      for (int step = -1; step <= 1; ++step) middles.push_back(float_of(bits_of(middle) + static_cast<uint32_t>(step)));
    }
  }
  const auto numel = static_cast<int64_t>(middles.size());
  const float* device_middles = take_copy(middles);
  for (DType out_dtype : {DType::bf16, DType::f16}) {
    Elements expected(out_dtype, 0, numel, 4);
    const Copy actual(*this, expected, numel);
    reference_.convert.convert(middles.data(), DType::f32, expected.data(), out_dtype, numel);
    cuda::convert(device_middles, DType::f32, actual.data(), out_dtype, numel, nullptr);
    EXPECT_TRUE(same(expected, actual.now())) << "to " << name_of(out_dtype);
  }
}

TEST_F(CudaConvert, SplitAndJoinEqualTheReferenceAndGiveBackTheMaster) {
  for (int64_t numel : device_numels()) {
    for (int64_t offset : kEveryOffset) {
      for (int64_t rest_offset : {offset, (offset + 1) % 4}) {
        SCOPED_TRACE(::testing::Message() << numel << " elements at " << offset << " and " << rest_offset);
        Elements master(DType::f32, offset, numel, 7), back(DType::f32, offset, numel, 8);
        Elements weight(DType::bf16, offset, numel, 9), rest(DType::bf16, rest_offset, numel, 10);
        const Copy device_master(*this, master, numel), device_back(*this, back, numel);
        const Copy device_weight(*this, weight, numel), device_rest(*this, rest, numel);
        cuda::split(device_master.floats(), device_weight.data(), device_rest.data(), numel, nullptr);
        cuda::join(device_weight.data(), device_rest.data(), device_back.floats(), numel, nullptr);
        reference_.convert.split(master.floats(), weight.data(), rest.data(), numel);
        reference_.convert.join(weight.data(), rest.data(), back.floats(), numel);
        // To the bit, NaN too.
        const Elements weight_now = device_weight.now(), rest_now = device_rest.now();
        Elements back_now = device_back.now();
        for (int64_t i = 0; i < weight.count(); ++i) ASSERT_EQ(weight.bits(i), weight_now.bits(i)) << i;
        for (int64_t i = 0; i < rest.count(); ++i) ASSERT_EQ(rest.bits(i), rest_now.bits(i)) << i;
        for (int64_t i = 0; i < back.count(); ++i) ASSERT_EQ(back.bits(i), back_now.bits(i)) << i;
        for (int64_t i = 0; i < numel; ++i) {
          const float wanted = master.floats()[i];
          ASSERT_EQ(bits_of(back_now.floats()[i]), std::isnan(wanted) ? 0x7fc00000u : bits_of(wanted)) << i;
        }
        reset();
      }
    }
  }
}

// Weights that somebody wrote, beside the remainders of what stood there.
TEST_F(CudaConvert, JoinsHalvesThatNoSplitHasMadeAsTheReference) {
  constexpr int64_t kCount = 70001;
  Elements weight(DType::bf16, 1, kCount, 11), rest(DType::bf16, 3, kCount, 12), whole(DType::f32, 0, kCount, 13);
  for (int64_t i = 0; i < kCount; i += 3) {
    static_cast<uint16_t*>(weight.data())[i] = i % 2 == 0 ? 0x0000 : 0x8000;
    static_cast<uint16_t*>(rest.data())[i] = static_cast<uint16_t>(0x7ffe + i % 5);
  }
  const Copy device_weight(*this, weight, kCount), device_rest(*this, rest, kCount), device_whole(*this, whole, kCount);
  cuda::join(device_weight.data(), device_rest.data(), device_whole.floats(), kCount, nullptr);
  reference_.convert.join(weight.data(), rest.data(), whole.floats(), kCount);
  const Elements now = device_whole.now();
  for (int64_t i = 0; i < whole.count(); ++i) ASSERT_EQ(whole.bits(i), now.bits(i)) << i;
}

TEST_F(CudaConvert, WorksInPlaceWhereElementsKeepTheirPlaces) {
  constexpr int64_t kCount = 5001;
  Elements values(DType::bf16, 1, kCount, 5);
  const Copy device(*this, values, kCount);
  Elements expected = values;
  reference_.convert.convert(values.data(), DType::bf16, expected.data(), DType::f16, kCount);
  cuda::convert(device.data(), DType::bf16, device.data(), DType::f16, kCount, nullptr);
  const Elements actual = device.now();
  for (int64_t i = 0; i < expected.count(); ++i) {
    const auto half = [i](const Elements& e) { return from_f16(static_cast<uint16_t>(e.bits(i))); };
    if (std::isnan(half(expected)) && std::isnan(half(actual))) continue;
    ASSERT_EQ(expected.bits(i), actual.bits(i)) << i;
  }
}

TEST(CudaConvertArguments, WidthThatChangesInPlaceIsABrokenPromise) {
  float memory[4] = {};
  EXPECT_THROW(cuda::convert(memory, DType::f32, memory, DType::bf16, 4, nullptr), BrokenPromise);
  EXPECT_THROW(cuda::add(memory, DType::bf16, memory, DType::f32, 2, nullptr), BrokenPromise);
  EXPECT_THROW(cuda::convert(memory, DType::f32, memory, DType::f32, -1, nullptr), BrokenPromise);
}

TEST(CudaConvertArguments, AnAddressBetweenElementsIsABrokenPromise) {
  float memory[4] = {};
  auto* between = reinterpret_cast<float*>(reinterpret_cast<char*>(memory) + 2);
  EXPECT_THROW(cuda::convert(between, DType::f32, &memory[2], DType::bf16, 1, nullptr), BrokenPromise);
  EXPECT_THROW(cuda::split(between, &memory[2], &memory[3], 1, nullptr), BrokenPromise);
}

}  // namespace
}  // namespace shoal::kernels
