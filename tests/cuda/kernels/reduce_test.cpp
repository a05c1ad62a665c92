#include "kernels/cuda/reduce.h"

#include <gtest/gtest.h>

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
  struct FoldCase {
    DType source_dtype, out_dtype;
    int source_count;
    int64_t numel, offset;
    int64_t shift;  // of the alignment of each source against the one before
  };
  void expect_fold_equals(const FoldCase& c) {
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
    for (const float carry : {0.0f, 1.0f, 0.7f}) {
      OrderedFold args{.sources = pointers.data(),
                       .source_count = c.source_count,
                       .source_dtype = c.source_dtype,
                       .out = expected.data(),
                       .out_dtype = c.out_dtype,
                       .rounding = c.out_dtype == DType::f32 ? kDtypes[++call_count_ % 3] : c.out_dtype,
                       .numel = c.numel,
                       .carry = carry,
                       .post = 1.0f / static_cast<float>(c.source_count)};
      reference_.reduce.ordered_fold(args);
      args.sources = device_pointers.data();
      args.out = actual.data();
      cuda::ordered_fold(args, nullptr);
      ASSERT_TRUE(same(expected, actual.now())) << "carry " << carry;
    }
    reset();
  }

  void expect_squares_equal(DType dtype, int64_t numel, int64_t offset, int64_t first_run,
                            float (*draw)(std::mt19937&)) {
    SCOPED_TRACE(::testing::Message() << numel << " elements of " << name_of(dtype) << " at " << offset << " from run "
                                      << first_run);
    Elements values(dtype, offset, numel, 12, draw);
    const Copy device_values(*this, values, numel);
    const auto count = static_cast<size_t>(piece_count(first_run, first_run + runs_of(numel)));
    std::vector<double> expected(count + 1, -7.0);  // one more, which stays as it is
    double* pieces = take_copy(expected);
    reference_.reduce.sum_squares(values.data(), dtype, numel, first_run, expected.data());
    cuda::sum_squares(device_values.data(), dtype, numel, first_run, pieces, nullptr);
    ASSERT_TRUE(same_sums(expected, read(pieces, count + 1)));
    reset();
  }

  int call_count_ = 0;
};

TEST_F(CudaReduce, TheFoldEqualsTheReferenceToTheBit) {
  for (DType source_dtype : kDtypes) {
    for (DType out_dtype : kDtypes) {
      for (int source_count : {1, 2, 3, 4, 7}) {
        for (int64_t numel : device_numels()) {
          const int64_t offset = (numel + source_count) % 4;
          for (int64_t shift : {0, 1}) {
            ASSERT_NO_FATAL_FAILURE(expect_fold_equals({source_dtype, out_dtype, source_count, numel, offset, shift}));
          }
        }
      }
    }
  }
}

TEST_F(CudaReduce, TheFoldOfManySourcesAndOfAMillionElements) {
  ASSERT_NO_FATAL_FAILURE(expect_fold_equals({DType::bf16, DType::f32, cuda::kMostSources, 5003, 2, 0}));
  ASSERT_NO_FATAL_FAILURE(expect_fold_equals({DType::f32, DType::bf16, cuda::kMostSources, 5003, 1, 1}));
  if (tests_are_small()) return;
  ASSERT_NO_FATAL_FAILURE(expect_fold_equals({DType::bf16, DType::f32, 4, 1'000'003, 3, 0}));
  ASSERT_NO_FATAL_FAILURE(expect_fold_equals({DType::f16, DType::f16, 2, 1'000'003, 0, 1}));
}

TEST_F(CudaReduce, GroupsEqualTheReferenceToTheBit) {
  for (DType dtype : kDtypes) {
    for (const int64_t group : {1, 2, 3, 5}) {
      for (const int64_t numel : {5, 1003}) {
        std::vector<Elements> sources;
        std::vector<const void*> pointers, device_pointers;
        for (int k = 0; k < 12; ++k) sources.emplace_back(dtype, 0, numel, static_cast<uint32_t>(40 + k));
        for (Elements& source : sources) {
          pointers.push_back(source.data());
          device_pointers.push_back(Copy(*this, source, numel).data());
        }
        for (const int at_once : {1, 2, 3, 4, 6, 12}) {
          Elements expected(DType::f32, 0, numel, 11), open(DType::f32, numel % 2, numel, 12);
          const Copy actual(*this, expected, numel), device_open(*this, open, numel);
          for (int begin = 0; begin < 12; begin += at_once) {
            const bool ends = begin + at_once == 12;
            OrderedFold args{.sources = pointers.data() + begin,
                             .source_count = at_once,
                             .source_dtype = dtype,
                             .out = expected.data(),
                             .rounding = ends ? DType::bf16 : DType::f32,
                             .numel = numel,
                             .carry = begin >= group ? 1.0f : 0.0f,
                             .post = ends ? 1.0f / 12 : 1.0f,
                             .group = group,
                             .before = begin % group,
                             .open = static_cast<float*>(open.data()),
                             .closes = ends};
            reference_.reduce.ordered_fold(args);
            args.sources = device_pointers.data() + begin;
            args.out = actual.data();
            args.open = static_cast<float*>(device_open.data());
            cuda::ordered_fold(args, nullptr);
            ASSERT_TRUE(same(expected, actual.now())) << name_of(dtype) << " by " << group << ", " << at_once;
            ASSERT_TRUE(same(open, device_open.now())) << name_of(dtype) << " by " << group << ", " << at_once;
          }
        }
        reset();
      }
    }
  }
}

TEST_F(CudaReduce, TheFoldMayWriteOverAnyOfItsSources) {
  for (DType dtype : kDtypes) {
    for (size_t place = 0; place < 3; ++place) {
      for (int64_t numel : device_numels()) {
        for (int64_t shift : {0, 1}) {
          Elements a(dtype, 0, numel, 31), b(dtype, shift, numel, 32), c(dtype, 3 * shift, numel, 33);
          Elements* sources[] = {&a, &b, &c};
          const void* pointers[] = {a.data(), b.data(), c.data()};
          const Copy copies[] = {{*this, a, numel}, {*this, b, numel}, {*this, c, numel}};
          const void* device_pointers[] = {copies[0].data(), copies[1].data(), copies[2].data()};
          OrderedFold args{.sources = pointers,
                           .source_count = 3,
                           .source_dtype = dtype,
                           .out = sources[place]->data(),
                           .out_dtype = dtype,
                           .rounding = dtype,
                           .numel = numel,
                           .post = 1.0f / 3.0f};
          reference_.reduce.ordered_fold(args);
          args.sources = device_pointers;
          args.out = copies[place].data();
          cuda::ordered_fold(args, nullptr);
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
          for (int64_t first_run : {int64_t{0}, 1 + numel % 31, 32 + 5 * (numel % 7)}) {
            ASSERT_NO_FATAL_FAILURE(expect_squares_equal(dtype, numel, offset, first_run, draw));
          }
        }
      }
    }
    const int64_t many = tests_are_small() ? 50'003 : 1'000'003;
    for (int64_t first_run : {0, 77}) {
      ASSERT_NO_FATAL_FAILURE(expect_squares_equal(dtype, many, 0, first_run, moderate));
    }
  }
}

TEST_F(CudaReduce, SumSquaresFindsOneInfinityOrNanAnywhere) {
  const int64_t numel = 2 * kNormBlock + 11;
  double* sums = static_cast<double*>(take(3 * sizeof(double)));
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    for (int64_t place : {int64_t{0}, int64_t{13}, kNormBlock - 1, kNormBlock, numel - 1}) {
      std::vector<float> values(static_cast<size_t>(numel), 0.5f);
      values[static_cast<size_t>(place)] = bad;
      cuda::sum_squares(take_copy(values), DType::f32, numel, 0, sums, nullptr);
      const std::vector<double> found = read(sums, 3);
      for (int64_t b = 0; b < 3; ++b) {
        EXPECT_EQ(std::isfinite(found[static_cast<size_t>(b)]), b != place / kNormBlock) << place;
      }
    }
  }
}

// Ranges with tops for a warp, and with tops for all warps, that begin and end anywhere.
TEST_F(CudaReduce, PiecesBecomeTheTopsOfTheHost) {
  std::vector<std::pair<int64_t, int64_t>> ranges = {{0, 0},     {0, 1},     {5, 6},      {1, 31},       {0, 32},
                                                     {3, 4099},  {0, 4096},  {64, 8192},  {31, 8193},    {1, 32 * 1024},
                                                     {0, 32767}, {0, 32768}, {32, 65536}, {65535, 70000}};
  if (!tests_are_small()) ranges.insert(ranges.end(), {{7, 1'000'001}, {0, 32 * 65536}, {12345, 7'654'321}});
  std::mt19937_64 random(5);
  std::vector<PieceSums> on_device;
  std::vector<std::vector<double>> expected;
  for (const auto& [begin, end] : ranges) {
    std::vector<double> pieces(static_cast<size_t>(piece_count(begin, end)));
    for (double& piece : pieces) {
      piece = std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 60) - 90);
    }
    const auto tops = static_cast<size_t>(top_count(begin, end));
    expected.emplace_back(tops + 1, -7.0);  // one more, which stays as it is
    on_device.push_back({pieces.empty() ? nullptr : take_copy(pieces), begin, end, take_copy(expected.back())});
    sum_pieces({pieces.data(), begin, end, expected.back().data()});
  }
  cuda::sum_pieces(take_copy(on_device), static_cast<int>(on_device.size()), nullptr);
  for (size_t i = 0; i < ranges.size(); ++i) {
    EXPECT_TRUE(same_sums(expected[i], read(on_device[i].tops, expected[i].size())))
        << "runs " << ranges[i].first << " to " << ranges[i].second;
  }
}

TEST_F(CudaReduce, NothingToSumIsNoLaunch) {
  cuda::sum_pieces(nullptr, 0, nullptr);
  cuda::sum_squares(nullptr, DType::f32, 0, 0, nullptr, nullptr);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST(CudaReduceArguments, WrongSourcesAreBrokenPromises) {
  float out = 0;
  const std::vector<const void*> sources(cuda::kMostSources + 1, &out);
  EXPECT_THROW(cuda::ordered_fold({.out = &out, .numel = 1}, nullptr), BrokenPromise);
  OrderedFold args{.sources = sources.data(), .source_count = cuda::kMostSources + 1, .out = &out, .numel = 1};
  EXPECT_THROW(cuda::ordered_fold(args, nullptr), BrokenPromise);
  args.source_count = 1;
  args.out_dtype = DType::bf16;  // over a source of another width
  EXPECT_THROW(cuda::ordered_fold(args, nullptr), BrokenPromise);
}

TEST(CudaReduceArguments, AnAddressBetweenElementsIsABrokenPromise) {
  float values[2] = {};
  double sum = 0;
  const char* between = reinterpret_cast<const char*>(values) + 2;
  EXPECT_THROW(cuda::sum_squares(between, DType::f32, 1, 0, &sum, nullptr), BrokenPromise);
}

}  // namespace
}  // namespace shoal::kernels
