#include "train/mixed_samples.h"

#include <gmock/gmock.h>

#include <map>
#include <numeric>

#include "message_of.h"
#include "unit/train/documents_of.h"

namespace shoal::train {
namespace {

using testing::Counting;
using ::testing::HasSubstr;
using testing::message_of;

TEST(Shares, AreTheWeightsInWholeSamples) {
  EXPECT_EQ(shares_of({0.7, 0.3}), (std::vector<int64_t>{7000, 3000}));
  EXPECT_EQ(shares_of({2, 1}), (std::vector<int64_t>{6667, 3333}));
  EXPECT_EQ(shares_of({1, 1, 1}), (std::vector<int64_t>{3334, 3333, 3333}));
  EXPECT_EQ(shares_of({5}), (std::vector<int64_t>{10'000}));
  for (const double wrong : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_THAT(message_of([&] { shares_of({1, wrong}); }), HasSubstr("is no weight of a source")) << wrong;
  }
  EXPECT_THAT(message_of([&] { shares_of({1, 1e-6}); }), HasSubstr("less than one sample of 10,000"));
}

class Mixed : public ::testing::Test {
 protected:
  MixedSamples mix(const std::vector<double>& weights, uint64_t seed = 1) const {
    std::vector<std::unique_ptr<Samples>> parts;
    for (size_t i = 0; i < weights.size(); ++i) {
      parts.push_back(cut_windows(*sources_[i], {.sequence = 4, .validation = 0.1, .seed = i}));
    }
    return MixedSamples(std::move(parts), weights, seed);
  }
  const Counting a_{4 * 50 + 1}, b_{4 * 3000 + 1}, c_{4 * 10 + 1};
  const Counting* sources_[3] = {&a_, &b_, &c_};
};

TEST_F(Mixed, EveryBlockHasTheSharesAndEachSourceGoesThroughItsOwn) {
  const MixedSamples mixed = mix({0.7, 0.2, 0.1});
  EXPECT_EQ(mixed.train(), 45 + 2700 + 9);
  for (int64_t block = 0; block < 3; ++block) {
    std::map<int64_t, int64_t> times;
    for (int64_t i = 0; i < kMixBlock; ++i) ++times[mixed.at(block * kMixBlock + i)];
    int64_t of_a = 0, of_b = 0;
    for (const auto& [sample, count] : times) {
      if (sample < 45) {
        of_a += count;
        EXPECT_NEAR(static_cast<double>(count), 7000.0 / 45, 2) << "whole epochs, and a part of one at either end";
      } else if (sample < 45 + 2700) {
        of_b += count;
        EXPECT_LE(count, 2) << "an epoch at a time";
      }
    }
    EXPECT_EQ(of_a, 7000);
    EXPECT_EQ(of_b, 2000);
  }
}

TEST_F(Mixed, TheOrderIsAFunctionOfSeedAndPosition) {
  const MixedSamples one = mix({0.5, 0.5}), same = mix({0.5, 0.5}), other = mix({0.5, 0.5}, 2);
  int64_t differ = 0;
  for (int64_t i = 12'300; i < 12'400; ++i) {
    EXPECT_EQ(one.at(i), same.at(i));
    differ += one.at(i) != other.at(i);
  }
  EXPECT_GT(differ, 50);
}

TEST_F(Mixed, ReadsTheSampleOfTheSourceAndValidatesOnAll) {
  const MixedSamples mixed = mix({0.5, 0.5});
  std::vector<int64_t> tokens(4), targets(4);
  mixed.read(45 + 7, {tokens.data(), targets.data()});
  EXPECT_EQ(tokens[0], 28) << "sample 7 of the second";
  EXPECT_EQ(mixed.validation(), 5 + 300);
  int64_t of_a = 0;
  for (int64_t i = 0; i < 61; ++i) {
    mixed.read(mixed.train() + i, {tokens.data(), targets.data()});
    of_a += tokens[0] >= 45 * 4 && tokens[0] < 50 * 4;
  }
  EXPECT_EQ(of_a, 1) << "by size: 5 of 305";
}

}  // namespace
}  // namespace shoal::train
