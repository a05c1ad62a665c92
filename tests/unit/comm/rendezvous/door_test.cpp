// Doors that are open, closed, and nobody's.
#include "comm/rendezvous/door.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

TEST(Door, IsReachedByEverybodyThoughNobodyTakesTheCall) {
  const Door door("127.0.0.1"), other("127.0.0.1");
  EXPECT_THAT(door.at(), HasSubstr("127.0.0.1:"));
  EXPECT_NE(door.at(), other.at());
  for (int times = 0; times < 3; ++times) {
    EXPECT_THAT(knock({door.at(), other.at()}, "127.0.0.1", 5s), ElementsAre("", ""));
  }
}

TEST(Door, OneThatIsClosedIsToldFromOneThatIsOpen) {
  std::string closed;
  {
    const Door gone("127.0.0.1");
    closed = gone.at();
  }
  const Door open("127.0.0.1");
  EXPECT_THAT(knock({closed, open.at(), closed}, "127.0.0.1", 5s),
              ElementsAre("Connection refused", "", "Connection refused"));
}

TEST(Door, OfSixIsWrittenInBrackets) {
  const Door door("::1");
  if (door.at().empty()) GTEST_SKIP() << "no IPv6 on the loopback here";
  EXPECT_THAT(door.at(), HasSubstr("[::1]:"));
  EXPECT_THAT(knock({door.at()}, "::1", 5s), ElementsAre(""));
}

TEST(Door, WhereNoneCanBeNothingIsSaid) {
  EXPECT_THAT(Door("no address").at(), IsEmpty());
  EXPECT_THAT(Door("192.0.2.1").at(), IsEmpty()) << "an address of nobody";
  EXPECT_THAT(knock({"", "-"}, "127.0.0.1", 1s), ElementsAre("", ""));
  EXPECT_THAT(knock({}, "", 1s), IsEmpty());
}

}  // namespace
}  // namespace shoal
