#include "doctor/rank_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/json.h"

namespace shoal::doctor {
namespace {

using ::testing::HasSubstr;

std::vector<RankRates> four(double compute_of_2) {
  std::vector<RankRates> ranks(4, {.compute = 40e9, .memory = 20e9, .link = 3e9});
  ranks[1].compute = 42e9;
  ranks[2].compute = compute_of_2;
  return ranks;
}

const std::vector<std::string> kHosts = {"a", "a", "b", "b"};

TEST(OddRanks, ARankFarBelowTheOthersStandsOut) {
  EXPECT_TRUE(odd_ranks(four(31e9)).empty());
  const std::vector<OddRank> odd = odd_ranks(four(20e9));
  ASSERT_EQ(odd.size(), 1u);
  EXPECT_EQ(odd[0].rank, 2);
  EXPECT_EQ(odd[0].kind->name, "compute");
  EXPECT_DOUBLE_EQ(odd[0].share, 0.5);
}

TEST(OddRanks, OfTwoTheSlowerIsHeldAgainstTheOther) {
  const std::vector<OddRank> odd = odd_ranks({{.memory = 20e9}, {.memory = 10e9}});
  ASSERT_EQ(odd.size(), 1u);
  EXPECT_EQ(odd[0].rank, 1);
}

TEST(OddRanks, WhatWasNotMeasuredIsNotSlow) {
  EXPECT_TRUE(odd_ranks({{}, {}, {}}).empty());
  EXPECT_TRUE(odd_ranks({{.compute = 1e9}}).empty());
}

TEST(RankRatesText, HasALineARankAndOneForWhoStandsOut) {
  EXPECT_EQ(to_text(four(20e9), kHosts),
            "rank  host            compute        memory         link           disk write     disk read\n"
            "0     a               40.00 Gflop/s  20.00 GB/s     3.00 GB/s      -              -\n"
            "1     a               42.00 Gflop/s  20.00 GB/s     3.00 GB/s      -              -\n"
            "2     b               20.00 Gflop/s  20.00 GB/s     3.00 GB/s      -              -\n"
            "3     b               40.00 Gflop/s  20.00 GB/s     3.00 GB/s      -              -\n"
            "rank 2 on b stands out: compute 20.00 Gflop/s, 0.50 of the other ranks' median\n");
}

TEST(RankRatesText, JsonSaysTheSame) {
  const json::Value all = json::parse(to_json(four(20e9), kHosts), "json");
  EXPECT_EQ(all.find("ranks")->as_array().size(), 4u);
  EXPECT_EQ(all.find("ranks")->as_array()[2].find("host")->as_text(), "b");
  EXPECT_EQ(all.find("odd")->as_array()[0].find("rank")->as_integer(), 2);
  EXPECT_THAT(to_json(four(20e9), kHosts), HasSubstr("\"disk_read_per_s\": null"));
}

TEST(Pairings, EachRoundHasEachRankOnceAndNoPairComesTwice) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    std::set<std::vector<int>> seen;
    const auto rounds = pairings(ranks, 100);
    EXPECT_EQ(rounds.size(), static_cast<size_t>(ranks + ranks % 2 - 1));
    for (const auto& parts : rounds) {
      std::set<int> members;
      for (const std::vector<int>& part : parts) {
        members.insert(part.begin(), part.end());
        if (part.size() == 2) {
          EXPECT_TRUE(seen.insert(part).second) << ranks;
        }
      }
      EXPECT_EQ(members.size(), static_cast<size_t>(ranks));
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(ranks * (ranks - 1) / 2)) << "all of them";
  }
  EXPECT_EQ(pairings(8, 3).size(), 3u);
}

}  // namespace
}  // namespace shoal::doctor
