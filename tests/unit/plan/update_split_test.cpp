#include "plan/update_split.h"

#include <gtest/gtest.h>

#include <numeric>

namespace shoal {
namespace {

// Seconds that each side takes with that share of the host.
double bus_seconds(const SplitWork& work, const UpdateRates& rates, double share) {
  return ((1 - share) * static_cast<double>(work.state_nbytes) - static_cast<double>(work.ring_nbytes) +
          share * static_cast<double>(work.host_nbytes)) /
         rates.bus_nbytes;
}
double host_seconds(const SplitWork& work, const UpdateRates& rates, double share) {
  return share * static_cast<double>(work.numel) / rates.host_numel;
}

TEST(UpdateSplit, BothEndTogether) {
  const SplitWork work{.numel = 1000, .state_nbytes = 10000, .ring_nbytes = 700, .host_nbytes = 4000};
  for (const double host_numel : {1.0, 50.0, 200.0}) {
    const UpdateRates rates{.bus_nbytes = 1000, .host_numel = host_numel};
    const double share = host_share(work, rates);
    EXPECT_GT(share, 0);
    EXPECT_LT(share, 0.9);
    EXPECT_NEAR(bus_seconds(work, rates, share), host_seconds(work, rates, share), 1e-9) << host_numel;
  }
}

TEST(UpdateSplit, AFasterHostHasMore) {
  const SplitWork work{.numel = 1000, .state_nbytes = 10000, .ring_nbytes = 700, .host_nbytes = 4000};
  double last = 0;
  for (const double host_numel : {1.0, 10.0, 100.0, 1000.0}) {
    const double share = host_share(work, {.bus_nbytes = 1000, .host_numel = host_numel});
    EXPECT_GT(share, last);
    last = share;
  }
  EXPECT_EQ(host_share(work, {.bus_nbytes = 1000, .host_numel = 1e12}), 0.9);
}

TEST(UpdateSplit, ARingThatHoldsAllLeavesTheHostNothing) {
  EXPECT_EQ(host_share({.numel = 10, .state_nbytes = 100, .ring_nbytes = 100, .host_nbytes = 40}, {1, 1}), 0);
  EXPECT_EQ(host_share({.numel = 10, .state_nbytes = 100, .ring_nbytes = 200, .host_nbytes = 40}, {1, 1}), 0);
  EXPECT_EQ(host_share({}, {1, 1}), 0);
  EXPECT_EQ(host_share({.numel = 10, .state_nbytes = 100, .ring_nbytes = 0, .host_nbytes = 40}, {0, 0}), 0);
}

// fp32 with one moment, and with two.
TEST(UpdateSplit, WhatWouldMoveMoreThanTheStatesIsLeftToTheGpu) {
  for (const size_t states : {4000, 8000}) {
    for (const double host_numel : {1.0, 1e12}) {
      const SplitWork work{.numel = 1000, .state_nbytes = states, .ring_nbytes = 100, .host_nbytes = 8000};
      EXPECT_EQ(host_share(work, {.bus_nbytes = 1000, .host_numel = host_numel}), 0) << states;
    }
  }
}

TEST(UpdateSplit, AShareIsSpreadEvenlyAndBeginsLate) {
  const std::vector<int64_t> equal(10, 4);
  EXPECT_EQ(spread_over(equal, 0.5), (std::vector<size_t>{1, 3, 5, 7, 9}));
  EXPECT_EQ(spread_over(equal, 0.25), (std::vector<size_t>{3, 7}));
  EXPECT_EQ(spread_over(equal, 0.09), (std::vector<size_t>{}));
  EXPECT_EQ(spread_over(equal, 0), (std::vector<size_t>{}));
  EXPECT_EQ(spread_over({}, 0.5), (std::vector<size_t>{}));
}

TEST(UpdateSplit, ChunksOfAnySizeMakeTheShareToOneChunk) {
  const std::vector<int64_t> numels = {7, 0, 1, 64, 64, 64, 3, 64, 50, 64, 64, 1, 0, 64};
  const int64_t all = std::accumulate(numels.begin(), numels.end(), int64_t{0});
  for (const double share : {0.1, 0.3, 0.5, 0.77, 0.9}) {
    int64_t chosen = 0;
    for (const size_t chunk : spread_over(numels, share)) {
      EXPECT_GT(numels[chunk], 0);
      chosen += numels[chunk];
    }
    EXPECT_LE(static_cast<double>(chosen), static_cast<double>(all) * share + 1e-9);
    EXPECT_GT(static_cast<double>(chosen), static_cast<double>(all) * share - 64) << share;
  }
}

}  // namespace
}  // namespace shoal
