#include "kernels/cuda/blocks.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "cuda/kernels/kernel_test.h"

namespace shoal::kernels {
namespace {

constexpr int kBits[] = {8, 4};

size_t nbytes_of_blocks(int64_t numel, int bits) { return Wire{DType::f32, bits}.nbytes(numel); }

float finite_float(std::mt19937& random) {
  const float value = awkward_float(random);
  return std::isfinite(value) ? value : 1.5f;
}

// No block is all zero or ordinary: every fourth element is a denormal, the others are small.
float tiny_float(std::mt19937& random) {
  const uint32_t draw = random();
  return float_of(draw % 4 == 0 ? draw & 0x807fffffu : (draw & 0x83ffffffu));
}

using Bytes = std::vector<unsigned char>;

class CudaBlocks : public KernelOnGpu {
 protected:
  // Blocks on the device and a guard behind them, `words` words behind what is aligned best.
  class DeviceBlocks {
   public:
    DeviceBlocks(KernelOnGpu& test, int64_t numel, int bits, size_t words)
        : DeviceBlocks(test, Bytes(nbytes_of_blocks(numel, bits), 0xa5), words) {}
    DeviceBlocks(KernelOnGpu& test, const Bytes& blocks, size_t words) : before_(words * 4), nbytes_(blocks.size()) {
      Bytes all(before_ + nbytes_ + kGuardNbytes, 0xa5);
      std::memcpy(all.data() + before_, blocks.data(), nbytes_);
      memory_ = take_in(test, all);
    }
    void* data() const { return memory_ + before_; }
    // What they are now; the guard must be as it was.
    Bytes now() const {
      Bytes all = read_all();
      for (size_t i = 0; i < all.size(); ++i) {
        const bool of_guard = i < before_ || i >= before_ + nbytes_;
        EXPECT_TRUE(!of_guard || all[i] == 0xa5) << "a guard was written";
      }
      return Bytes(all.begin() + static_cast<int64_t>(before_), all.begin() + static_cast<int64_t>(before_ + nbytes_));
    }

   private:
    static constexpr size_t kGuardNbytes = 64;
    static unsigned char* take_in(KernelOnGpu& test, const Bytes& all);
    Bytes read_all() const;
    size_t before_, nbytes_;
    unsigned char* memory_ = nullptr;
  };

  void expect_there_and_back_equal(DType dtype, int bits, int64_t numel, int64_t offset, float (*draw)(std::mt19937&)) {
    SCOPED_TRACE(::testing::Message() << name_of(dtype) << ", int" << bits << ", " << numel << " elements at "
                                      << offset);
    Elements values(dtype, offset, numel, static_cast<uint32_t>(numel + bits), draw);
    const Copy device_values(*this, values, numel);
    Bytes expected(nbytes_of_blocks(numel, bits), 0xa5);
    const DeviceBlocks blocks(*this, numel, bits, static_cast<size_t>(offset));
    reference_.blocks.quantize(values.data(), dtype, numel, bits, expected.data());
    cuda::quantize(device_values.data(), dtype, numel, bits, blocks.data(), nullptr);
    ASSERT_EQ(expected, blocks.now());
    ASSERT_TRUE(same(values, device_values.now())) << "in the input";
    Elements back(dtype, offset, numel, 5);
    const Copy device_back(*this, back, numel);
    reference_.blocks.dequantize(expected.data(), bits, back.data(), dtype, numel);
    cuda::dequantize(blocks.data(), bits, device_back.data(), dtype, numel, nullptr);
    ASSERT_TRUE(same(back, device_back.now())) << "back again";
    reset();
  }

 public:
  using KernelOnGpu::read;
  using KernelOnGpu::take_copy;
};

unsigned char* CudaBlocks::DeviceBlocks::take_in(KernelOnGpu& test, const Bytes& all) {
  return static_cast<CudaBlocks&>(test).take_copy(all);
}
Bytes CudaBlocks::DeviceBlocks::read_all() const { return read(memory_, before_ + nbytes_ + kGuardNbytes); }

TEST_F(CudaBlocks, QuantizeAndBackEqualTheReferenceToTheBit) {
  for (float (*draw)(std::mt19937&) : {awkward_float, finite_float, tiny_float}) {
    for (const DType dtype : kDtypes) {
      for (const int bits : kBits) {
        for (const int64_t numel : device_numels()) {
          for (const int64_t offset : kEveryOffset) {
            ASSERT_NO_FATAL_FAILURE(expect_there_and_back_equal(dtype, bits, numel, offset, draw));
          }
        }
      }
    }
  }
}

TEST_F(CudaBlocks, AMillionElementsEqualTheReference) {
  if (tests_are_small()) GTEST_SKIP() << "SHOAL_TEST_SIZE=small";
  for (float (*draw)(std::mt19937&) : {awkward_float, finite_float, tiny_float}) {
    for (const DType dtype : kDtypes) {
      for (const int bits : kBits) {
        ASSERT_NO_FATAL_FAILURE(expect_there_and_back_equal(dtype, bits, 1'000'003, 0, draw));
      }
    }
  }
}

TEST_F(CudaBlocks, EveryBf16AndF16ValueIsQuantizedLikeTheReference) {
  constexpr int64_t kCount = 65536;
  std::vector<uint16_t> every(kCount);
  // In order, so that blocks have one exponent and are finite, but for the last ones of each sign.
  for (int64_t i = 0; i < kCount; ++i) every[static_cast<size_t>(i)] = static_cast<uint16_t>(i);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const int bits : kBits) {
      Bytes expected(nbytes_of_blocks(kCount, bits));
      reference_.blocks.quantize(every.data(), dtype, kCount, bits, expected.data());
      const DeviceBlocks blocks(*this, kCount, bits, 0);
      cuda::quantize(take_copy(every), dtype, kCount, bits, blocks.data(), nullptr);
      EXPECT_EQ(expected, blocks.now()) << name_of(dtype) << ", int" << bits;
    }
  }
}

// All elements of a block between two numbers, and just beside: to the even one, on either side of zero.
TEST_F(CudaBlocks, TiesGoToTheEvenNumber) {
  for (const int bits : kBits) {
    const int most = bits == 8 ? 127 : 7;
    std::vector<float> values;
    for (const float unit : {1.0f, 0x1p-20f, 0x1p-100f, 3.0f, 0.1f}) {
      for (int number = 0; number < most; ++number) {
        const float middle = (static_cast<float>(number) + 0.5f) * unit;
        for (const float sign : {1.0f, -1.0f}) {
          for (int step = -1; step <= 1; ++step) {
            values.push_back(sign * float_of(bits_of(middle) + static_cast<uint32_t>(step)));
            if (values.size() % 128 == 127) values.push_back(static_cast<float>(most) * unit);
          }
        }
      }
      while (values.size() % 128 != 127) values.push_back(0);
      values.push_back(static_cast<float>(most) * unit);
    }
    const auto numel = static_cast<int64_t>(values.size());
    Bytes expected(nbytes_of_blocks(numel, bits));
    reference_.blocks.quantize(values.data(), DType::f32, numel, bits, expected.data());
    const DeviceBlocks blocks(*this, numel, bits, 0);
    cuda::quantize(take_copy(values), DType::f32, numel, bits, blocks.data(), nullptr);
    EXPECT_EQ(expected, blocks.now()) << "int" << bits;
  }
}

TEST_F(CudaBlocks, ErrorFeedbackEqualsTheReferenceToTheBit) {
  for (float (*draw)(std::mt19937&) : {awkward_float, finite_float, tiny_float}) {
    for (const int bits : kBits) {
      for (const bool forgets : {true, false}) {
        for (const int64_t numel : {1, 128, 200, 1024, 4096, 40'000}) {
          for (const int64_t offset : {0, 1}) {
            SCOPED_TRACE(::testing::Message()
                         << "int" << bits << ", forgets " << forgets << ", " << numel << " at " << offset);
            Elements values(DType::f32, offset, numel, 3, draw),
                errors(DType::bf16, 3 * offset, numel, 4, finite_float);
            const Copy device_values(*this, values, numel), device_errors(*this, errors, numel);
            Bytes expected(nbytes_of_blocks(numel, bits), 0xa5);
            const DeviceBlocks blocks(*this, numel, bits, 0);
            for (int round = 0; round < 3; ++round) {  // the errors of one are those of the next
              reference_.blocks.quantize_with_errors(values.floats(), numel, bits, expected.data(),
                                                     {errors.data(), 0.8f, forgets && round == 0});
              cuda::quantize_with_errors(device_values.floats(), numel, bits, blocks.data(),
                                         {device_errors.data(), 0.8f, forgets && round == 0}, nullptr);
              ASSERT_EQ(expected, blocks.now()) << round;
              ASSERT_TRUE(same(errors, device_errors.now())) << round;
            }
            reset();
          }
        }
      }
    }
  }
}

// In one launch, in two, and in several; with errors too.
TEST_F(CudaBlocks, ShareMemoryWithTheirElements) {
  for (const DType dtype : kDtypes) {
    for (const int bits : kBits) {
      for (const int64_t blocks : {1, 3, 127, 128, 129, 500, 8000}) {
        SCOPED_TRACE(::testing::Message() << name_of(dtype) << ", int" << bits << ", " << blocks << " blocks");
        if (tests_are_small() && blocks > 500) continue;
        const int64_t numel = blocks * kBlockNumel;
        const size_t nbytes = nbytes_of_blocks(numel, bits);
        Elements values(dtype, 0, numel, 11, finite_float);
        Bytes expected(nbytes);
        reference_.blocks.quantize(values.data(), dtype, numel, bits, expected.data());
        const Copy packed(*this, values, numel);
        cuda::quantize(packed.data(), dtype, numel, bits, packed.data(), nullptr);
        Elements got = packed.now();
        ASSERT_EQ(std::memcmp(got.data(), expected.data(), nbytes), 0);

        Elements back = values;
        const size_t before = static_cast<size_t>(numel) * nbytes_of(dtype) - nbytes;
        std::memcpy(static_cast<unsigned char*>(back.data()) + before, expected.data(), nbytes);
        const Copy unpacked(*this, back, numel);
        cuda::dequantize(static_cast<unsigned char*>(unpacked.data()) + before, bits, unpacked.data(), dtype, numel,
                         nullptr);
        reference_.blocks.dequantize(expected.data(), bits, back.data(), dtype, numel);
        ASSERT_TRUE(same(back, unpacked.now()));

        if (dtype == DType::f32) {
          Elements errors(DType::bf16, 0, numel, 12, finite_float);
          const Copy fed(*this, values, numel), device_errors(*this, errors, numel);
          cuda::quantize_with_errors(fed.floats(), numel, bits, fed.data(), {device_errors.data(), 0.5f, false},
                                     nullptr);
          reference_.blocks.quantize_with_errors(values.floats(), numel, bits, expected.data(),
                                                 {errors.data(), 0.5f, false});
          Elements sent = fed.now();
          ASSERT_EQ(std::memcmp(sent.data(), expected.data(), nbytes), 0);
          ASSERT_TRUE(same(errors, device_errors.now()));
        }
        reset();
      }
    }
  }
}

TEST_F(CudaBlocks, FoldEqualsTheHostsToTheBit) {
  int call = 0;
  for (const DType out_dtype : kDtypes) {
    for (const int bits : kBits) {
      for (const int slices : {1, 2, 3, 8, 70}) {
        for (const int64_t numel : {1, 128, 384, 1024, 4097, 40'000}) {
          if (tests_are_small() && numel > 4097) continue;
          SCOPED_TRACE(::testing::Message()
                       << slices << " slices of " << numel << ", int" << bits << ", to " << name_of(out_dtype));
          const size_t slice_nbytes = nbytes_of_blocks(numel, bits);
          Bytes all(slice_nbytes * static_cast<size_t>(slices));
          for (int slice = 0; slice < slices; ++slice) {
            Elements values(DType::f32, 0, numel, static_cast<uint32_t>(30 + slice),
                            slice == 1 ? awkward_float : finite_float);
            reference_.blocks.quantize(values.data(), DType::f32, numel, bits,
                                       all.data() + slice_nbytes * static_cast<size_t>(slice));
          }
          const DeviceBlocks device(*this, all, static_cast<size_t>(call % 3));
          Elements expected(out_dtype, call % 2, numel, 31);
          const Copy actual(*this, expected, numel);
          for (const float carry : {0.0f, 1.0f, 0.7f}) {
            BlockFold args{.slices = all.data(), .slice_nbytes = slice_nbytes, .bits = bits, .fold = {}};
            args.fold.source_count = slices;
            args.fold.out = expected.data();
            args.fold.out_dtype = out_dtype;
            args.fold.rounding = out_dtype == DType::f32 ? kDtypes[++call % 3] : out_dtype;
            args.fold.numel = numel;
            args.fold.carry = carry;
            args.fold.post = 1.0f / 3.0f;
            fold_blocks(args);
            args.slices = device.data();
            args.fold.out = actual.data();
            cuda::fold_blocks(args, nullptr);
            ASSERT_TRUE(same(expected, actual.now())) << "carry " << carry;
          }
          ++call;
          reset();
        }
      }
    }
  }
}

TEST(CudaBlocksArguments, WhatDoesNotFitIsABrokenPromise) {
  alignas(16) unsigned char memory[4096] = {};
  EXPECT_THROW(cuda::quantize(memory, DType::f32, 128, 8, memory + 2048 + 2, nullptr), BrokenPromise) << "alignment";
  EXPECT_THROW(cuda::quantize(memory, DType::f32, 128, 5, memory + 2048, nullptr), BrokenPromise) << "5 bits";
  EXPECT_THROW(cuda::quantize(memory, DType::f32, 128, 8, memory + 128, nullptr), BrokenPromise) << "in the midst";
  EXPECT_THROW(cuda::dequantize(memory, 8, memory, DType::f32, 128, nullptr), BrokenPromise) << "not at the end";
  EXPECT_THROW(cuda::quantize_with_errors(nullptr, 128, 8, memory, {}, nullptr), BrokenPromise) << "no errors";
  BlockFold fold{.slices = memory, .slice_nbytes = 132, .bits = 8, .fold = {}};
  fold.fold.source_count = 2;
  fold.fold.group = 2;
  EXPECT_THROW(cuda::fold_blocks(fold, nullptr), BrokenPromise) << "by groups";
}

}  // namespace
}  // namespace shoal::kernels
