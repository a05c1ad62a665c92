#include "train/sample_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/mix.h"

namespace shoal::train {
namespace {

TEST(Shuffled, IsOneToOne) {
  for (const int64_t count : {1, 2, 3, 4, 5, 16, 17, 255, 256, 257, 1000}) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < count; ++i) seen.insert(shuffled(i, count, 7));
    EXPECT_EQ(static_cast<int64_t>(seen.size()), count);
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), count - 1);
  }
}

TEST(Shuffled, StaysInsideLargeRanges) {
  const int64_t count = (int64_t{1} << 50) + 1;
  for (const int64_t i : {int64_t{0}, int64_t{1}, count / 2, count - 1}) {
    EXPECT_LT(shuffled(i, count, 3), count);
    EXPECT_GE(shuffled(i, count, 3), 0);
  }
}

// Chi-squared over where each index lands: 63 degrees of freedom, 99.99 % lie below 117.
TEST(Shuffled, SendsEachIndexEverywhereOverTheKeys) {
  constexpr int64_t kCount = 64, kKeys = 6400;
  for (const int64_t index : {0, 1, 31, 63}) {
    std::vector<double> hits(kCount);
    for (uint64_t key = 0; key < kKeys; ++key) hits[size_t(shuffled(index, kCount, mixed(1, key)))] += 1;
    double chi_squared = 0;
    for (const double hit : hits) chi_squared += (hit - 100) * (hit - 100) / 100;
    EXPECT_LT(chi_squared, 130) << index;
  }
}

TEST(SampleOrder, EveryEpochHasEachSampleOnceInAnotherOrder) {
  const SampleOrder order(5, 37);
  std::vector<std::vector<int64_t>> epochs;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> samples;
    for (int64_t i = 0; i < 37; ++i) samples.push_back(order.at(epoch * 37 + i));
    epochs.push_back(samples);
    std::sort(samples.begin(), samples.end());
    for (int64_t i = 0; i < 37; ++i) EXPECT_EQ(samples[size_t(i)], i);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST(SampleOrder, DependsOnTheSeedAndStaysTheSameOverVersions) {
  const auto first_eight = [](uint64_t seed) {
    std::vector<int64_t> samples;
    for (int64_t i = 0; i < 8; ++i) samples.push_back(SampleOrder(seed, 100).at(i));
    return samples;
  };
  EXPECT_NE(first_eight(1), first_eight(2));
  EXPECT_EQ(first_eight(1), (std::vector<int64_t>{33, 57, 15, 56, 45, 46, 75, 63}));
}

}  // namespace
}  // namespace shoal::train
