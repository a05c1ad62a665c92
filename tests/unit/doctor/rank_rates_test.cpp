#include "doctor/rank_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
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
  EXPECT_EQ(
      to_text(four(20e9), kHosts),
      "rank  host            compute        memory         link           network        disk write     disk read\n"
      "0     a               40.00 Gflop/s  20.00 GB/s     3.00 GB/s      -              -              -\n"
      "1     a               42.00 Gflop/s  20.00 GB/s     3.00 GB/s      -              -              -\n"
      "2     b               20.00 Gflop/s  20.00 GB/s     3.00 GB/s      -              -              -\n"
      "3     b               40.00 Gflop/s  20.00 GB/s     3.00 GB/s      -              -              -\n"
      "rank 2 on b stands out: compute 20.00 Gflop/s, 0.50 of the other ranks' median\n");
}

TEST(RankRatesText, JsonSaysTheSame) {
  const json::Value all = json::parse(to_json(four(20e9), kHosts), "json");
  EXPECT_EQ(all.find("ranks")->as_array().size(), 4u);
  EXPECT_EQ(all.find("ranks")->as_array()[2].find("host")->as_text(), "b");
  EXPECT_EQ(all.find("odd")->as_array()[0].find("rank")->as_integer(), 2);
  EXPECT_THAT(to_json(four(20e9), kHosts), HasSubstr("\"disk_read_per_s\": null"));
}

// What each rank meets in rounds that hold it once each.
std::map<int, std::set<int>> partners_in(const std::vector<Round>& rounds, size_t ranks) {
  std::map<int, std::set<int>> partners;
  for (const Round& parts : rounds) {
    std::set<int> members;
    for (const std::vector<int>& part : parts) {
      members.insert(part.begin(), part.end());
      if (part.size() < 2) continue;
      EXPECT_TRUE(partners[part[0]].insert(part[1]).second) << "they met before";
      EXPECT_TRUE(partners[part[1]].insert(part[0]).second);
    }
    EXPECT_EQ(members.size(), ranks);
  }
  return partners;
}

TEST(Pairings, OnOneHostEachPairMeetsOnce) {
  for (size_t ranks = 2; ranks <= 9; ++ranks) {
    const Pairings found = pairings(std::vector<std::string>(ranks, "a"), 100);
    EXPECT_EQ(found.within.size(), ranks + ranks % 2 - 1);
    EXPECT_TRUE(found.between.empty());
    for (const auto& [rank, met] : partners_in(found.within, ranks)) EXPECT_EQ(met.size(), ranks - 1) << rank;
  }
  EXPECT_EQ(pairings(std::vector<std::string>(8, "a"), 3).within.size(), 3u);
  EXPECT_TRUE(pairings({"a"}, 3).within.empty());
}

TEST(Pairings, OfSeveralHostsEachRankHasPartnersOfBothKindsLikeAllOthers) {
  for (const int on_each : {1, 2, 3, 8}) {
    for (const int hosts : {2, 3, 4}) {
      std::vector<std::string> names;
      for (int rank = 0; rank < on_each * hosts; ++rank) names.push_back("host " + std::to_string(rank / on_each));
      const Pairings found = pairings(names, 3);
      const auto within = partners_in(found.within, names.size()), between = partners_in(found.between, names.size());
      EXPECT_EQ(within.size(), on_each == 1 ? 0 : names.size());
      EXPECT_EQ(between.size(), names.size());
      for (const auto& [rank, met] : within) {
        for (const int other : met) EXPECT_EQ(names[static_cast<size_t>(other)], names[static_cast<size_t>(rank)]);
      }
      for (const auto& [rank, met] : between) {
        for (const int other : met) EXPECT_NE(names[static_cast<size_t>(other)], names[static_cast<size_t>(rank)]);
      }
    }
  }
}

TEST(Pairings, HostsOfOtherSizesLeaveRanksAlone) {
  const Pairings found = pairings({"a", "a", "a", "b"}, 3);
  EXPECT_EQ(partners_in(found.between, 4), (std::map<int, std::set<int>>{{0, {3}}, {3, {0}}}));
}

// Fast inside hosts, slow between them: nobody stands out for having been paired otherwise.
TEST(Pairings, NoSoundRankStandsOutOverSeveralHosts) {
  for (const auto& [on_each, hosts] : {std::pair(8, 2), {6, 2}, {4, 4}, {2, 4}, {4, 3}}) {
    std::vector<std::string> names;
    for (int rank = 0; rank < on_each * hosts; ++rank) names.push_back(std::to_string(rank / on_each));
    const Pairings found = pairings(names, 3);
    std::vector<RankRates> rates(names.size());
    for (const auto& [rank, met] : partners_in(found.within, names.size())) rates[static_cast<size_t>(rank)].link = 9e9;
    for (const auto& [rank, met] : partners_in(found.between, names.size())) {
      rates[static_cast<size_t>(rank)].network = 1e9;
    }
    EXPECT_TRUE(odd_ranks(rates).empty()) << on_each << " on " << hosts;
  }
}

}  // namespace
}  // namespace shoal::doctor
