#include "comm/group/members.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

TEST(Members, OfAWorldHaveTheNumbersOfTheWorld) {
  const Members all = Members::all(3, 2);
  EXPECT_EQ(all.rank(), 2);
  EXPECT_EQ(all.size(), 3);
  EXPECT_EQ(all.global(1), 1);
  EXPECT_FALSE(all.are_a_part());
  EXPECT_EQ(all.channel_name("weights"), "weights");
  EXPECT_EQ(all.channel_key("weights"), "weights");
}

TEST(Members, OfAPartCountFromZeroInTheirOwnOrder) {
  const Members part({5, 1, 3}, 3, "shard");
  EXPECT_EQ(part.rank(), 2);
  EXPECT_EQ(part.size(), 3);
  EXPECT_EQ(part.global(), 3);
  EXPECT_EQ(part.global(0), 5);
  EXPECT_TRUE(part.are_a_part());
  EXPECT_EQ(part.channel_name(""), "shard");
  EXPECT_EQ(part.channel_name("weights"), "weights of shard");
}

TEST(Members, KnowWhoStandsOnAnotherHost) {
  const Members part({5, 1, 3}, 3, "shard", {0, 0, 0, 1, 1, 1});
  EXPECT_FALSE(part.is_elsewhere(0, part.rank()));
  EXPECT_TRUE(part.is_elsewhere(1, part.rank()));
  EXPECT_FALSE(Members::all(3, 2).is_elsewhere(0, 2)) << "no hosts are known: all are on one";
}

TEST(Members, KeysTellPartsOfOneNameApart) {
  EXPECT_EQ(Members({0, 2}, 0, "shard").channel_key("x"), "x of shard {0 2}");
  std::vector<int> many(100), others(100);
  for (int rank = 0; rank < 100; ++rank) many[static_cast<size_t>(rank)] = others[static_cast<size_t>(rank)] = rank;
  std::swap(others[98], others[99]);
  const std::string key = Members(many, 0, "shard").channel_key("");
  EXPECT_LT(key.size(), 40u);
  EXPECT_NE(key, Members(others, 0, "shard").channel_key(""));
}

}  // namespace
}  // namespace shoal
