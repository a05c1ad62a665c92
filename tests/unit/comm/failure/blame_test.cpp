#include "comm/failure/blame.h"

#include <gtest/gtest.h>

#include <map>

namespace shoal {
namespace {

using Waits = std::map<int, std::vector<int>>;

std::vector<int> ends(const std::vector<int>& missing, Waits waits) {
  return ends_of_waits(missing, [&](int rank) { return waits[rank]; });
}

TEST(Blame, ARankThatWaitsForNobodyIsToBlameItself) { EXPECT_EQ(ends({2}, {}), std::vector<int>{2}); }

TEST(Blame, AChainOfWaitsLeadsToItsEnd) {
  EXPECT_EQ(ends({2}, {{2, {3}}, {3, {1}}}), std::vector<int>{1});
  EXPECT_EQ(ends({0, 2}, {{0, {2}}, {2, {3, 1}}}), (std::vector<int>{1, 3}));
}

TEST(Blame, AChainThatBitesItsTailBlamesThoseItBeganWith) {
  EXPECT_EQ(ends({2}, {{2, {3}}, {3, {2}}}), std::vector<int>{2});
  EXPECT_EQ(ends({2}, {{2, {3, 1}}, {3, {2}}}), std::vector<int>{1}) << "one way out is enough";
}

}  // namespace
}  // namespace shoal
