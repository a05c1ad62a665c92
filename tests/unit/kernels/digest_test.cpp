#include "kernels/digest.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace shoal::kernels {
namespace {

std::vector<float> values_of(int64_t numel) {
  std::vector<float> values;
  for (int64_t i = 0; i < numel; ++i) values.push_back(std::sin(static_cast<float>(i)));
  return values;
}

uint64_t digest_of(const std::vector<float>& values) {
  return digest_elements(values.data(), 0, static_cast<int64_t>(values.size()));
}

TEST(DigestElements, PartsAddUpWhereverTheyAreCut) {
  for (const int64_t numel : {0, 1, 7, 64, 1001}) {
    const std::vector<float> values = values_of(numel);
    for (const int64_t parts : {1, 2, 3, 5}) {
      uint64_t sum = 0;
      for (int64_t part = parts - 1; part >= 0; --part) {
        const int64_t begin = numel * part / parts, end = numel * (part + 1) / parts;
        sum += digest_elements(values.data() + begin, begin, end - begin);
      }
      EXPECT_EQ(sum, digest_of(values)) << numel << " in " << parts;
    }
  }
}

TEST(DigestElements, OneBitShows) {
  const std::vector<float> values = values_of(100);
  for (size_t i = 0; i < values.size(); ++i) {
    std::vector<float> changed = values;
    changed[i] = std::nextafter(changed[i], 2.0f);
    EXPECT_NE(digest_of(changed), digest_of(values)) << i;
  }
}

TEST(DigestElements, TwoThatChangePlacesShow) {
  std::vector<float> values = values_of(100);
  const uint64_t before = digest_of(values);
  std::swap(values[3], values[77]);
  EXPECT_NE(digest_of(values), before);
}

TEST(DigestElements, TheSignOfZeroShowsAndANanIsItsBits) {
  EXPECT_NE(digest_of({0.0f}), digest_of({-0.0f}));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(digest_of({nan}), digest_of({nan}));
}

}  // namespace
}  // namespace shoal::kernels
