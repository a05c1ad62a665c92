#include "kernels/blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "unit/kernels/awkward.h"

namespace shoal::kernels {
namespace {

constexpr int kBits[] = {8, 4};

size_t nbytes_of_blocks(int64_t numel, int bits) { return Wire{DType::f32, bits}.nbytes(numel); }

// Blocks with a guard behind them, at any address.
struct Blocks {
  Blocks(int64_t numel, int bits, size_t offset)
      : bytes(nbytes_of_blocks(numel, bits) + offset + 8, 0xa5), at(offset) {}
  unsigned char* data() { return bytes.data() + at; }
  std::vector<unsigned char> bytes;
  size_t at;
};

float finite_float(std::mt19937& random) {
  const float value = awkward_float(random);
  return std::isfinite(value) ? value : 1.5f;
}

class BlocksIsa : public EveryIsa {
 protected:
  // Many tails, all dtypes, all offsets: `draw` says whether values may be infinite.
  template <class Check>
  void over_the_grid(float (*draw)(std::mt19937&), const Check& check) {
    for (const DType dtype : kDtypes) {
      for (const int bits : kBits) {
        for (const int64_t numel : {0, 1, 7, 16, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1000, 4096}) {
          for (const int64_t offset : kOffsets) {
            SCOPED_TRACE(::testing::Message()
                         << name_of(dtype) << ", int" << bits << ", " << numel << " elements at " << offset);
            Elements values(dtype, offset, numel, static_cast<uint32_t>(numel + bits), draw);
            check(values, dtype, bits, numel, static_cast<size_t>(offset));
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
};

TEST_P(BlocksIsa, QuantizeAndBackEqualTheReferenceToTheBit) {
  for (float (*draw)(std::mt19937&) : {awkward_float, finite_float}) {
    over_the_grid(draw, [&](Elements& values, DType dtype, int bits, int64_t numel, size_t offset) {
      Blocks expected(numel, bits, offset), actual = expected;
      reference_.blocks.quantize(values.data(), dtype, numel, bits, expected.data());
      tested_->blocks.quantize(values.data(), dtype, numel, bits, actual.data());
      ASSERT_EQ(expected.bytes, actual.bytes);
      Elements back(dtype, static_cast<int64_t>(offset), numel, 5), back_expected = back;
      reference_.blocks.dequantize(expected.data(), bits, back_expected.data(), dtype, numel);
      tested_->blocks.dequantize(expected.data(), bits, back.data(), dtype, numel);
      ASSERT_TRUE(same(back_expected, back));
    });
  }
}

TEST_P(BlocksIsa, ErrorFeedbackEqualsTheReferenceToTheBit) {
  for (const int bits : kBits) {
    for (const bool forgets : {true, false}) {
      for (const int64_t numel : {128, 200, 1024}) {
        SCOPED_TRACE(::testing::Message() << "int" << bits << ", forgets " << forgets << ", " << numel);
        Elements values(DType::f32, 1, numel, 3), errors(DType::bf16, 3, numel, 4, finite_float), expected = errors;
        Blocks blocks(numel, bits, 4), blocks_expected = blocks;
        reference_.blocks.quantize_with_errors(values.floats(), numel, bits, blocks_expected.data(),
                                               {expected.data(), 0.8f, forgets});
        tested_->blocks.quantize_with_errors(values.floats(), numel, bits, blocks.data(),
                                             {errors.data(), 0.8f, forgets});
        ASSERT_EQ(blocks_expected.bytes, blocks.bytes);
        ASSERT_TRUE(same(expected, errors));
      }
    }
  }
}

// Blocks at the begin of what they are made of, and at the end of what they become.
TEST_P(BlocksIsa, MayShareMemoryWithTheirElements) {
  for (const DType dtype : kDtypes) {
    for (const int bits : kBits) {
      for (const int64_t numel : {128, 256, 1280}) {
        SCOPED_TRACE(::testing::Message() << name_of(dtype) << ", int" << bits << ", " << numel);
        Elements values(dtype, 0, numel, 11, finite_float);
        Blocks blocks(numel, bits, 0);
        const size_t nbytes = nbytes_of_blocks(numel, bits);
        tested_->blocks.quantize(values.data(), dtype, numel, bits, blocks.data());
        Elements in_place = values;
        tested_->blocks.quantize(in_place.data(), dtype, numel, bits, in_place.data());
        ASSERT_EQ(std::memcmp(in_place.data(), blocks.data(), nbytes), 0);
        Elements expected = values;
        tested_->blocks.dequantize(blocks.data(), bits, expected.data(), dtype, numel);
        Elements actual = values;
        auto* end = static_cast<unsigned char*>(actual.data()) + static_cast<size_t>(numel) * nbytes_of(dtype);
        std::memcpy(end - nbytes, blocks.data(), nbytes);
        tested_->blocks.dequantize(end - nbytes, bits, actual.data(), dtype, numel);
        ASSERT_TRUE(same(expected, actual));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, BlocksIsa, ::testing::Values(Isa::reference, Isa::neon, Isa::avx2, Isa::avx512),
                         isa_test_name);

std::vector<float> there_and_back(const std::vector<float>& values, int bits) {
  const auto numel = static_cast<int64_t>(values.size());
  std::vector<unsigned char> blocks(nbytes_of_blocks(numel, bits));
  quantize(values.data(), DType::f32, numel, bits, blocks.data());
  std::vector<float> back(values.size(), 99.0f);
  dequantize(blocks.data(), bits, back.data(), DType::f32, numel);
  return back;
}

TEST(Blocks, NoElementIsWrongByMoreThanHalfAScale) {
  std::mt19937 random(1);
  for (const int bits : kBits) {
    for (int round = 0; round < 200; ++round) {
      std::vector<float> values(128);
      for (float& value : values) value = finite_float(random);
      float most = 0;
      for (const float value : values) most = std::max(most, std::fabs(value));
      const float scale = std::max(most / (bits == 8 ? 127.0f : 7.0f), 0x1p-126f);
      const std::vector<float> back = there_and_back(values, bits);
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_LE(std::fabs(static_cast<double>(back[i]) - values[i]), 0.50001 * scale) << values[i];
        if (std::fabs(values[i]) != most) continue;
        ASSERT_NEAR(back[i] / values[i], 1, 1e-6);
      }
    }
  }
}

TEST(Blocks, WhatIsNotFiniteIsNotHidden) {
  for (const int bits : kBits) {
    for (const float odd : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
      for (const size_t at : {size_t{0}, size_t{63}, size_t{64}, size_t{127}, size_t{130}}) {
        std::vector<float> values(256, 0.5f);
        values[at] = odd;
        const std::vector<float> back = there_and_back(values, bits);
        for (size_t i = 0; i < values.size(); ++i) {
          EXPECT_EQ(std::isnan(back[i]), i / 128 == at / 128) << "element " << i << ", odd at " << at;
        }
      }
    }
  }
}

TEST(Blocks, ZerosAreZeroAndDenormalsDoNotBecomeLarge) {
  for (const int bits : kBits) {
    for (const float value : there_and_back({0.0f, -0.0f, 0.0f}, bits)) {
      EXPECT_EQ(std::bit_cast<uint32_t>(value), 0u);
    }
    const float tiny = std::numeric_limits<float>::denorm_min();
    for (const float value : there_and_back({tiny, -tiny, 0x1p-127f}, bits)) EXPECT_LE(std::fabs(value), 0x1p-126f);
    const float most = std::numeric_limits<float>::max();
    EXPECT_NEAR(there_and_back({most, 1.0f, -most}, bits)[2] / -most, 1.0f, 1e-6);
  }
}

// The other elements of a tensor, and where it begins, do not matter: only those of the block.
TEST(Blocks, APartHasTheBlocksOfTheWhole) {
  std::mt19937 random(3);
  std::vector<float> values(1024);
  for (float& value : values) value = awkward_float(random);
  for (const int bits : kBits) {
    std::vector<unsigned char> whole(nbytes_of_blocks(1024, bits)), parts(whole.size());
    quantize(values.data(), DType::f32, 1024, bits, whole.data());
    for (const auto& [begin, numel] : {std::pair<int64_t, int64_t>{0, 384}, {384, 128}, {512, 512}}) {
      quantize(values.data() + begin, DType::f32, numel, bits, parts.data() + nbytes_of_blocks(begin, bits));
    }
    EXPECT_EQ(whole, parts);
  }
}

// Of several tiles, and a last block that is not full.
TEST(Blocks, AFoldOfSlicesIsThatOfTheirElements) {
  constexpr int kSlices = 3;
  for (const int bits : kBits) {
    for (const int64_t numel : {0, 1, 128, 2048, 2049, 5000}) {
      for (const float carry : {0.0f, 0.5f}) {
        const size_t slice_nbytes = nbytes_of_blocks(numel, bits);
        std::vector<unsigned char> slices(slice_nbytes * kSlices);
        std::vector<std::vector<float>> back(kSlices, std::vector<float>(static_cast<size_t>(numel)));
        std::vector<const void*> sources;
        for (size_t slice = 0; slice < kSlices; ++slice) {
          Elements values(DType::f32, 0, numel, static_cast<uint32_t>(slice), finite_float);
          quantize(values.data(), DType::f32, numel, bits, slices.data() + slice * slice_nbytes);
          dequantize(slices.data() + slice * slice_nbytes, bits, back[slice].data(), DType::f32, numel);
          sources.push_back(back[slice].data());
        }
        Elements expected(DType::bf16, 1, numel, 9, finite_float), actual = expected;
        BlockFold args{.slices = slices.data(), .slice_nbytes = slice_nbytes, .bits = bits, .fold = {}};
        args.fold.source_count = kSlices;
        args.fold.out_dtype = args.fold.rounding = DType::bf16;
        args.fold.numel = numel;
        args.fold.carry = carry;
        args.fold.post = 0.3f;
        OrderedFold plain = args.fold;
        plain.sources = sources.data();
        plain.out = expected.data();
        ordered_fold(plain);
        args.fold.out = actual.data();
        fold_blocks(args);
        ASSERT_TRUE(same(expected, actual)) << "int" << bits << ", " << numel << " elements, carry " << carry;
      }
    }
  }
}

// What rounding took comes back: over many sums of the same small elements beside a large one the mean of what arrives
// is the element. Without feedback it is zero each time.
TEST(Blocks, ErrorFeedbackGivesBackWhatRoundingTook) {
  std::vector<float> values(128, 0.02f);
  values[0] = 1.0f;
  std::vector<uint16_t> errors(128, 0x7fc0);
  std::vector<unsigned char> blocks(block_nbytes(4));
  std::vector<float> back(128);
  double sum = 0;
  constexpr int kSums = 400;
  for (int round = 0; round < kSums; ++round) {
    quantize_with_errors(values.data(), 128, 4, blocks.data(), {errors.data(), 0.8f, round == 0});
    dequantize(blocks.data(), 4, back.data(), DType::f32, 128);
    sum += back[5];
  }
  EXPECT_NEAR(sum / kSums, 0.02, 0.002);
  EXPECT_EQ(there_and_back(values, 4)[5], 0.0f);
}

TEST(Blocks, ASumThatIsNotFiniteLeavesTheErrorsAsTheyAre) {
  std::vector<float> values(128, 0.02f);
  values[0] = 1.0f;
  std::vector<uint16_t> errors(128);
  std::vector<unsigned char> blocks(block_nbytes(8));
  quantize_with_errors(values.data(), 128, 8, blocks.data(), {errors.data(), 0.5f, true});
  const std::vector<uint16_t> before = errors;
  values[7] = std::numeric_limits<float>::infinity();
  quantize_with_errors(values.data(), 128, 8, blocks.data(), {errors.data(), 0.5f, false});
  EXPECT_EQ(errors, before);
}

}  // namespace
}  // namespace shoal::kernels
