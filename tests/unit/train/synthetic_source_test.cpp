#include "train/synthetic_source.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

namespace shoal::train {
namespace {

std::vector<int64_t> read(const TokenSource& source, int64_t begin, int64_t numel) {
  std::vector<int64_t> tokens(static_cast<size_t>(numel));
  source.read(begin, numel, tokens.data());
  return tokens;
}

TEST(Synthetic, AnyRangeReadsTheSameTokens) {
  const auto source = make_synthetic({.vocab = 17, .numel = 500, .surprise = 0.05, .seed = 3});
  const std::vector<int64_t> all = read(*source, 0, 500);
  for (const int64_t begin : {0, 1, 7, 250, 499}) {
    for (const int64_t numel : {0, 1, 30}) {
      if (begin + numel > 500) continue;
      EXPECT_EQ(read(*source, begin, numel), std::vector<int64_t>(all.begin() + begin, all.begin() + begin + numel));
    }
  }
}

// The entropy of the pairs that occur, against the promised one.
TEST(Synthetic, HasTheEntropyThatItSays) {
  for (const double surprise : {0.1, 0.5, 1.0}) {
    const SyntheticOptions options{.vocab = 8, .numel = 400'000, .surprise = surprise, .seed = 11};
    const std::vector<int64_t> tokens = read(*make_synthetic(options), 0, options.numel);
    std::map<std::pair<int64_t, int64_t>, double> pairs;
    std::map<int64_t, double> firsts;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      ASSERT_LT(tokens[i], 8);
      pairs[{tokens[i], tokens[i + 1]}] += 1;
      firsts[tokens[i]] += 1;
    }
    double entropy = 0;
    for (const auto& [pair, count] : pairs) {
      entropy -= count / static_cast<double>(tokens.size() - 1) * std::log(count / firsts[pair.first]);
    }
    EXPECT_NEAR(entropy, entropy_of(options), 0.01) << surprise;
  }
}

TEST(Synthetic, EntropyOfEvenDrawsIsThatOfTheVocabulary) {
  EXPECT_NEAR(entropy_of({.vocab = 256, .surprise = 1.0}), std::log(256.0), 1e-12);
}

TEST(Synthetic, SeedsDiffer) {
  const auto first = make_synthetic({.vocab = 17, .numel = 100, .seed = 1});
  const auto second = make_synthetic({.vocab = 17, .numel = 100, .seed = 2});
  EXPECT_NE(read(*first, 0, 100), read(*second, 0, 100));
}

}  // namespace
}  // namespace shoal::train
