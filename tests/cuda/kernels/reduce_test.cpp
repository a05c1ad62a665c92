#include "kernels/cuda/reduce.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/check.h"
#include "cuda/kernels/kernel_test.h"

namespace shoal::kernels {
namespace {

::testing::AssertionResult same_sums(const std::vector<double>& expected, const std::vector<double>& actual) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(actual[i])) continue;
    if (std::bit_cast<uint64_t>(expected[i]) == std::bit_cast<uint64_t>(actual[i])) continue;
    return ::testing::AssertionFailure() << "sum " << i << ": expected " << expected[i] << ", got " << actual[i];
  }
  return ::testing::AssertionSuccess();
}

float moderate(std::mt19937& random) { return static_cast<float>(static_cast<int32_t>(random())) * 0x1p-40f; }

class CudaReduce : public KernelOnGpu {
 protected:
  struct MeanCase {
    DType source_dtype, out_dtype;
    int source_count;
    int64_t numel, offset;
    int64_t shift;  // of the alignment of each source against the one before
  };
  void expect_mean_equals(const MeanCase& c) {
    SCOPED_TRACE(::testing::Message() << c.source_count << " sources of " << name_of(c.source_dtype) << " to "
                                      << name_of(c.out_dtype) << ", " << c.numel << " elements at " << c.offset
                                      << ", shifted by " << c.shift);
    std::vector<Elements> sources;
    std::vector<const void*> pointers, device_pointers;
    for (int k = 0; k < c.source_count; ++k) {
      sources.emplace_back(c.source_dtype, (c.offset + c.shift * k) % 4, c.numel, static_cast<uint32_t>(20 + k));
    }
    for (Elements& source : sources) {
      pointers.push_back(source.data());
      device_pointers.push_back(Copy(*this, source, c.numel).data());
    }
    Elements expected(c.out_dtype, c.offset, c.numel, 11);
    const Copy actual(*this, expected, c.numel);
    for (const bool accumulate : {false, true, true}) {
      OrderedMean args{.sources = pointers.data(),
                       .source_count = c.source_count,
                       .source_dtype = c.source_dtype,
                       .out = expected.data(),
                       .out_dtype = c.out_dtype,
                       .numel = c.numel,
                       .pre = ++call_count_ % 2 == 0 ? 1.0f : 0.7f,
                       .post = 1.0f / static_cast<float>(c.source_count),
                       .accumulate = accumulate};
      reference_.reduce.ordered_mean(args);
      args.sources = device_pointers.data();
      args.out = actual.data();
      cuda::ordered_mean(args, nullptr);
      ASSERT_TRUE(same(expected, actual.now())) << (accumulate ? "accumulating" : "writing");
    }
    reset();
  }

  void expect_squares_equal(DType dtype, int64_t numel, int64_t offset, float (*draw)(std::mt19937&)) {
    SCOPED_TRACE(::testing::Message() << numel << " elements of " << name_of(dtype) << " at " << offset);
    Elements values(dtype, offset, numel, 12, draw);
    const Copy device_values(*this, values, numel);
    const auto block_count = static_cast<size_t>((numel + kNormBlock - 1) / kNormBlock);
    std::vector<double> expected(block_count + 1, -7.0);  // one more, which stays as it is
    double* sums = take_copy(expected);
    reference_.reduce.sum_squares(values.data(), dtype, numel, expected.data());
    cuda::sum_squares(device_values.data(), dtype, numel, sums, nullptr);
    ASSERT_TRUE(same_sums(expected, read(sums, block_count + 1)));
    reset();
  }

  int call_count_ = 0;
};

TEST_F(CudaReduce, OrderedMeanEqualsTheReferenceToTheBit) {
  for (DType source_dtype : kDtypes) {
    for (DType out_dtype : kDtypes) {
      for (int source_count : {1, 2, 3, 4, 7}) {
        for (int64_t numel : device_numels()) {
          const int64_t offset = (numel + source_count) % 4;
          for (int64_t shift : {0, 1}) {
            ASSERT_NO_FATAL_FAILURE(expect_mean_equals({source_dtype, out_dtype, source_count, numel, offset, shift}));
          }
        }
      }
    }
  }
}

TEST_F(CudaReduce, OrderedMeanOfManySourcesAndOfAMillionElements) {
  ASSERT_NO_FATAL_FAILURE(expect_mean_equals({DType::bf16, DType::f32, cuda::kMostSources, 5003, 2, 0}));
  ASSERT_NO_FATAL_FAILURE(expect_mean_equals({DType::f32, DType::bf16, cuda::kMostSources, 5003, 1, 1}));
  if (tests_are_small()) return;
  ASSERT_NO_FATAL_FAILURE(expect_mean_equals({DType::bf16, DType::f32, 4, 1'000'003, 3, 0}));
  ASSERT_NO_FATAL_FAILURE(expect_mean_equals({DType::f16, DType::f16, 2, 1'000'003, 0, 1}));
}

TEST_F(CudaReduce, OrderedMeanMayWriteOverAnyOfItsSources) {
  for (DType dtype : kDtypes) {
    for (size_t place = 0; place < 3; ++place) {
      for (int64_t numel : device_numels()) {
        for (int64_t shift : {0, 1}) {
          Elements a(dtype, 0, numel, 31), b(dtype, shift, numel, 32), c(dtype, 3 * shift, numel, 33);
          Elements* sources[] = {&a, &b, &c};
          const void* pointers[] = {a.data(), b.data(), c.data()};
          const Copy copies[] = {{*this, a, numel}, {*this, b, numel}, {*this, c, numel}};
          const void* device_pointers[] = {copies[0].data(), copies[1].data(), copies[2].data()};
          OrderedMean args{.sources = pointers,
                           .source_count = 3,
                           .source_dtype = dtype,
                           .out = sources[place]->data(),
                           .out_dtype = dtype,
                           .numel = numel,
                           .post = 1.0f / 3.0f};
          reference_.reduce.ordered_mean(args);
          args.sources = device_pointers;
          args.out = copies[place].data();
          cuda::ordered_mean(args, nullptr);
          for (size_t k = 0; k < 3; ++k) {
            ASSERT_TRUE(same(*sources[k], copies[k].now()))
                << "source " << k << " with the mean over " << place << ", " << name_of(dtype) << ", " << numel;
          }
          reset();
        }
      }
    }
  }
}

TEST_F(CudaReduce, SumSquaresEqualsTheReferenceToTheBit) {
  std::vector<int64_t> numels = device_numels();
  for (int64_t blocks : {2, 3, 4, 5, 8, 9}) {
    for (int64_t more : {0, 1, 9}) numels.push_back(blocks * kNormBlock + more);
  }
  for (DType dtype : kDtypes) {
    for (int64_t numel : numels) {
      for (int64_t offset : {int64_t{0}, 1 + numel % 3}) {
        for (auto draw : {awkward_float, moderate}) {
          ASSERT_NO_FATAL_FAILURE(expect_squares_equal(dtype, numel, offset, draw));
        }
      }
    }
    const int64_t many = tests_are_small() ? 50'003 : 1'000'003;
    ASSERT_NO_FATAL_FAILURE(expect_squares_equal(dtype, many, 0, moderate));
  }
}

TEST_F(CudaReduce, SumSquaresFindsOneInfinityOrNanAnywhere) {
  const int64_t numel = 2 * kNormBlock + 11;
  double* sums = static_cast<double*>(take(3 * sizeof(double)));
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    for (int64_t place : {int64_t{0}, int64_t{13}, kNormBlock - 1, kNormBlock, numel - 1}) {
      std::vector<float> values(static_cast<size_t>(numel), 0.5f);
      values[static_cast<size_t>(place)] = bad;
      cuda::sum_squares(take_copy(values), DType::f32, numel, sums, nullptr);
      const std::vector<double> found = read(sums, 3);
      for (int64_t b = 0; b < 3; ++b) {
        EXPECT_EQ(std::isfinite(found[static_cast<size_t>(b)]), b != place / kNormBlock) << place;
      }
    }
  }
}

TEST_F(CudaReduce, SumInOrderAddsOneAfterTheOther) {
  std::vector<size_t> counts = {0, 1, 2, 31, 33, 255, 257, 2047, 2048, 2049, 4096, 4097, 6145};
  if (!tests_are_small()) counts.push_back(100'003);
  std::mt19937_64 random(5);
  std::vector<std::vector<double>> values;
  std::vector<double> expected;
  std::vector<cuda::SumRun> runs;
  double* sums = static_cast<double*>(take(counts.size() * sizeof(double)));
  for (size_t count : counts) {
    // Of very different sizes, so that another order gives other bits.
    std::vector<double>& run = values.emplace_back(count);
    for (double& value : run) {
      value = std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 60) - 90);
    }
    expected.push_back(std::accumulate(run.begin(), run.end(), 0.0));
    runs.push_back({take_copy(run), static_cast<int64_t>(count), sums + runs.size()});
  }
  cuda::sum_in_order(take_copy(runs), static_cast<int>(runs.size()), nullptr);
  EXPECT_TRUE(same_sums(expected, read(sums, counts.size())));
  std::reverse(values.back().begin(), values.back().end());
  EXPECT_NE(expected.back(), std::accumulate(values.back().begin(), values.back().end(), 0.0))
      << "the values do not tell one order from another";
}

TEST_F(CudaReduce, NothingToSumIsNoLaunch) {
  cuda::sum_in_order(nullptr, 0, nullptr);
  cuda::sum_squares(nullptr, DType::f32, 0, nullptr, nullptr);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST(CudaReduceArguments, WrongSourcesAreBrokenPromises) {
  float out = 0;
  const std::vector<const void*> sources(cuda::kMostSources + 1, &out);
  EXPECT_THROW(cuda::ordered_mean({.out = &out, .numel = 1}, nullptr), BrokenPromise);
  OrderedMean args{.sources = sources.data(), .source_count = cuda::kMostSources + 1, .out = &out, .numel = 1};
  EXPECT_THROW(cuda::ordered_mean(args, nullptr), BrokenPromise);
  args.source_count = 1;
  args.out_dtype = DType::bf16;  // over a source of another width
  EXPECT_THROW(cuda::ordered_mean(args, nullptr), BrokenPromise);
}

TEST(CudaReduceArguments, AnAddressBetweenElementsIsABrokenPromise) {
  float values[2] = {};
  double sum = 0;
  const char* between = reinterpret_cast<const char*>(values) + 2;
  EXPECT_THROW(cuda::sum_squares(between, DType::f32, 1, &sum, nullptr), BrokenPromise);
}

}  // namespace
}  // namespace shoal::kernels
