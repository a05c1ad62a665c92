// Test data that finds kernels out: ordinary numbers mixed with zeros of both signs, denormals, infinities, NaN, huge
// and tiny values, and halves between two bf16 or fp16 neighbours. And comparison to the bit, where one NaN is as good
// as another: which operand's payload survives an addition is not fixed by IEEE 754.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/element.h"
#include "kernels/isa.h"

namespace shoal::kernels {

inline const std::vector<int64_t> kNumels = {0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 4095, 4096, 4097};
inline constexpr int64_t kOffsets[] = {0, 1, 3};
inline constexpr DType kDtypes[] = {DType::f32, DType::bf16, DType::f16};
inline constexpr int64_t kGuard = 32;  // elements on either side that no kernel may touch

inline float awkward_float(std::mt19937& random) {
  static const uint32_t kSpecial[] = {
      0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x7f800000,
      0xff800000, 0x7fc00000, 0x7fa00001, 0x3f800000, 0xbf800000, 0x3f808000, 0x3f818000, 0x3f80ffff, 0xbf807fff,
      0x33000000, 0x33000001, 0x387fe000, 0x38800000, 0x477fefff, 0x477ff000, 0x47800000, 0x3f801000, 0x3f803000};
  const uint32_t draw = random();
  switch (draw % 8) {
    case 0: return std::bit_cast<float>(kSpecial[(draw >> 8) % std::size(kSpecial)]);
    case 1: return std::bit_cast<float>(static_cast<uint32_t>(random()));  // any bits at all
    default: {
      const float mantissa = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f;
      return std::ldexp(mantissa, static_cast<int>((draw >> 8) % 24) - 16);
    }
  }
}

// `numel` elements of any dtype behind kGuard + offset elements, with a guard after them too.
class Elements {
 public:
  Elements(DType dtype, int64_t offset, int64_t numel, uint32_t seed, float (*draw)(std::mt19937&) = awkward_float)
      : dtype_(dtype), offset_(kGuard + offset), bytes_((kGuard + offset + numel + kGuard) * nbytes_of(dtype)) {
    std::mt19937 random(seed);
    const int64_t count = static_cast<int64_t>(bytes_.size() / nbytes_of(dtype));
    for (int64_t i = 0; i < count; ++i) store_element(bytes_.data(), dtype, i, draw(random));
  }

  DType dtype() const { return dtype_; }
  int64_t count() const { return static_cast<int64_t>(bytes_.size() / nbytes_of(dtype_)); }
  void* data() { return bytes_.data() + offset_ * static_cast<int64_t>(nbytes_of(dtype_)); }
  float* floats() { return static_cast<float*>(data()); }
  uint32_t bits(int64_t i) const {
    uint32_t bits = 0;
    std::memcpy(&bits, bytes_.data() + i * static_cast<int64_t>(nbytes_of(dtype_)), nbytes_of(dtype_));
    return bits;
  }
  float value(int64_t i) const { return load_element(bytes_.data(), dtype_, i); }

 private:
  DType dtype_;
  int64_t offset_;
  std::vector<unsigned char> bytes_;
};

// Equal bits, guards included; NaN equals NaN.
inline ::testing::AssertionResult same(const Elements& expected, const Elements& actual) {
  for (int64_t i = 0; i < expected.count(); ++i) {
    if (expected.bits(i) == actual.bits(i)) continue;
    if (std::isnan(expected.value(i)) && std::isnan(actual.value(i))) continue;
    return ::testing::AssertionFailure() << "element " << i - kGuard
                                         << " (counted from the first guard's end): expected " << expected.value(i)
                                         << " (bits " << std::hex << expected.bits(i) << "), got " << actual.value(i)
                                         << " (bits " << actual.bits(i) << ")";
  }
  return ::testing::AssertionSuccess();
}

// A test that runs once for each instruction set and says why where it cannot.
class EveryIsa : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    const std::string reason = why_unusable(GetParam());
    if (!reason.empty()) GTEST_SKIP() << isa_name(GetParam()) << ": " << reason;
    tested_ = &kernels_of(GetParam());
  }
  const Kernels* tested_ = nullptr;
  const Kernels& reference_ = kernels_of(Isa::reference);
};
inline std::string isa_test_name(const ::testing::TestParamInfo<Isa>& info) {
  return std::string(isa_name(info.param));
}

}  // namespace shoal::kernels
