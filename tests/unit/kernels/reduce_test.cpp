#include "kernels/reduce.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "unit/kernels/awkward.h"

namespace shoal::kernels {
namespace {

class ReduceIsa : public EveryIsa {};

TEST_P(ReduceIsa, TheFoldEqualsTheReferenceToTheBit) {
  int call_count = 0;
  for (DType source_dtype : kDtypes) {
    for (DType out_dtype : kDtypes) {
      for (int source_count : {1, 2, 3, 4, 7}) {
        for (int64_t numel : kNumels) {
          const int64_t offset = kOffsets[(numel + source_count) % 3];
          SCOPED_TRACE(::testing::Message() << source_count << " sources of " << name_of(source_dtype) << " to "
                                            << name_of(out_dtype) << ", " << numel << " elements at " << offset);
          std::vector<Elements> sources;
          std::vector<const void*> pointers;
          for (int k = 0; k < source_count; ++k) {
            sources.emplace_back(source_dtype, offset + k % 2, numel, static_cast<uint32_t>(20 + k));
          }
          for (Elements& source : sources) pointers.push_back(source.data());
          Elements expected(out_dtype, offset, numel, 11), actual = expected;
          for (const float carry : {0.0f, 1.0f, 0.7f}) {
            OrderedFold args{.sources = pointers.data(),
                             .source_count = source_count,
                             .source_dtype = source_dtype,
                             .out = expected.data(),
                             .out_dtype = out_dtype,
                             .rounding = out_dtype == DType::f32 ? kDtypes[++call_count % 3] : out_dtype,
                             .numel = numel,
                             .carry = carry,
                             .post = 1.0f / static_cast<float>(source_count)};
            reference_.reduce.ordered_fold(args);
            args.out = actual.data();
            tested_->reduce.ordered_fold(args);
            ASSERT_TRUE(same(expected, actual)) << "carry " << carry;
          }
        }
      }
    }
  }
}

TEST_P(ReduceIsa, GroupsEqualTheReferenceToTheBit) {
  for (DType dtype : kDtypes) {
    for (const int64_t group : {1, 2, 3, 5}) {
      for (const int64_t numel : {5, 64, 131}) {
        std::vector<Elements> sources;
        std::vector<const void*> pointers;
        for (int k = 0; k < 12; ++k) sources.emplace_back(dtype, k % 2, numel, static_cast<uint32_t>(40 + k));
        for (Elements& source : sources) pointers.push_back(source.data());
        for (const int at_once : {1, 2, 3, 4, 6, 12}) {
          Elements expected(DType::f32, 1, numel, 11), actual = expected;
          Elements open(DType::f32, 3, numel, 12), tested_open = open;
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
            args.out = actual.data();
            args.open = static_cast<float*>(tested_open.data());
            tested_->reduce.ordered_fold(args);
            ASSERT_TRUE(same(expected, actual)) << name_of(dtype) << " by " << group << ", " << at_once << " at once";
            ASSERT_TRUE(same(open, tested_open)) << name_of(dtype) << " by " << group << ", " << at_once << " at once";
          }
        }
      }
    }
  }
}

TEST_P(ReduceIsa, TheFoldMayWriteOverAnyOfItsSources) {
  for (DType dtype : kDtypes) {
    for (int place = 0; place < 3; ++place) {
      for (int64_t numel : kNumels) {
        Elements a(dtype, 0, numel, 31), b(dtype, 1, numel, 32), c(dtype, 3, numel, 33), apart(dtype, 0, numel, 34);
        Elements* sources[] = {&a, &b, &c};
        const void* pointers[] = {a.data(), b.data(), c.data()};
        OrderedFold args{.sources = pointers,
                         .source_count = 3,
                         .source_dtype = dtype,
                         .out = apart.data(),
                         .out_dtype = dtype,
                         .rounding = dtype,
                         .numel = numel,
                         .post = 1.0f / 3.0f};
        reference_.reduce.ordered_fold(args);
        args.out = sources[place]->data();
        tested_->reduce.ordered_fold(args);
        for (int64_t i = 0; i < numel; ++i) {
          const float expected = load_element(apart.data(), dtype, i), actual = load_element(args.out, dtype, i);
          ASSERT_TRUE(bits_of(expected) == bits_of(actual) || (std::isnan(expected) && std::isnan(actual)))
              << name_of(dtype) << ", element " << i << ": expected " << expected << ", got " << actual;
        }
      }
    }
  }
}

float moderate(std::mt19937& random) { return static_cast<float>(static_cast<int32_t>(random())) * 0x1p-40f; }

TEST_P(ReduceIsa, SumSquaresEqualsTheReferenceToTheBit) {
  std::vector<int64_t> numels = kNumels;
  for (int64_t blocks : {2, 3, 4, 5, 8}) {
    for (int64_t more : {0, 1, 9}) numels.push_back(blocks * kNormBlock + more);
  }
  for (DType dtype : kDtypes) {
    for (int64_t numel : numels) {
      for (auto draw : {awkward_float, moderate}) {
        Elements values(dtype, numel % 3, numel, 12, draw);
        for (const int64_t first_run : {int64_t{0}, 1 + numel % 31, 32 + 5 * (numel % 7)}) {
          const auto count = static_cast<size_t>(piece_count(first_run, first_run + runs_of(numel)));
          std::vector<double> expected(count + 1, -7.0), actual(count + 1, -7.0);
          reference_.reduce.sum_squares(values.data(), dtype, numel, first_run, expected.data());
          tested_->reduce.sum_squares(values.data(), dtype, numel, first_run, actual.data());
          for (size_t b = 0; b <= count; ++b) {
            if (std::isnan(expected[b])) {
              ASSERT_TRUE(std::isnan(actual[b]));
            } else {
              ASSERT_EQ(std::bit_cast<uint64_t>(expected[b]), std::bit_cast<uint64_t>(actual[b]))
                  << name_of(dtype) << ", " << numel << " elements from run " << first_run << ", piece " << b;
            }
          }
        }
      }
    }
  }
}

TEST_P(ReduceIsa, SumSquaresFindsOneInfinityOrNanAnywhere) {
  const int64_t numel = 2 * kNormBlock + 11;
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    for (int64_t place : {int64_t{0}, int64_t{13}, kNormBlock - 1, kNormBlock, numel - 1}) {
      std::vector<float> values(numel, 0.5f);
      values[place] = bad;
      double sums[3];
      tested_->reduce.sum_squares(values.data(), DType::f32, numel, 0, sums);
      for (int64_t b = 0; b < 3; ++b) EXPECT_EQ(std::isfinite(sums[b]), b != place / kNormBlock) << place;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, ReduceIsa, ::testing::Values(Isa::neon, Isa::avx2, Isa::avx512), isa_test_name);

TEST(Reduce, MeanOfNoSourcesIsABrokenPromise) {
  float out = 0;
  EXPECT_THROW(ordered_fold({.out = &out, .numel = 1}), BrokenPromise);
}

TEST(Reduce, PublicDoorsRunTheActiveVersion) {
  const float a = 3, b = 5;
  const void* sources[] = {&a, &b};
  float out = 0;
  ordered_fold({.sources = sources, .source_count = 2, .out = &out, .numel = 1, .post = 0.5f});
  EXPECT_EQ(out, 4.0f);
  double sum = 0;
  sum_squares(&out, DType::f32, 1, 5, &sum);
  EXPECT_EQ(sum, 16.0);
  double top = 0;
  sum_pieces({&sum, 5, 6, &top});
  EXPECT_EQ(top, 16.0);
}

}  // namespace
}  // namespace shoal::kernels
