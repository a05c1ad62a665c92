#include "comm/group/parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "message_of.h"

namespace shoal {
namespace {

TEST(Parts, GiveEachRankItsOwnInTheOrderGiven) {
  const Parts parts{{3, 0}, {1, 2}};
  EXPECT_EQ(to_text(parts), "{3 0} {1 2}");
  EXPECT_EQ(part_of(parts, Members::all(4, 0), "shard").ranks(), (std::vector<int>{3, 0}));
  EXPECT_EQ(part_of(parts, Members::all(4, 0), "shard").rank(), 1);
  EXPECT_EQ(part_of(parts, Members::all(4, 2), "shard").ranks(), (std::vector<int>{1, 2}));
}

TEST(Parts, OfAPartHoldItsMembersByTheirNumbersInTheWorld) {
  const Members whole({4, 6, 8}, 6, "row");
  EXPECT_EQ(part_of({{8}, {6, 4}}, whole, "x").ranks(), (std::vector<int>{6, 4}));
  EXPECT_THROW(part_of({{0}, {1, 2}}, whole, "x"), WrongParts);
}

TEST(Parts, ThatAreNoPartitionSayWhy) {
  const auto told = [](const Parts& parts) {
    return testing::message_of([&] { part_of(parts, Members::all(3, 1), "shard"); });
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(told({{0, 1}}),
            "[comm rank 1] split of shard into {0 1}: rank 2 stands in no part. Put each of the ranks {0 1 2} into one "
            "part.");
  EXPECT_THAT(told({{0, 1}, {2, 1}}), HasSubstr("rank 1 stands there twice"));
  EXPECT_THAT(told({{0, 1}, {2, 3}}), HasSubstr("rank 3 is not of this group"));
  EXPECT_THAT(told({{0, 1}, {2, -1}}), HasSubstr("rank -1 is not of this group"));
  EXPECT_THAT(told({{0, 1, 2}, {}}), HasSubstr("a part has no ranks"));
  EXPECT_THAT(told({}), HasSubstr("rank 0 stands in no part"));
}

}  // namespace
}  // namespace shoal
