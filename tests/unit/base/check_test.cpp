#include "base/check.h"

#include <gtest/gtest.h>

namespace shoal {

TEST(Check, AFailedCheckNamesThePlaceTheConditionAndBothValues) {
  const int have = 2;
  try {
    SHOAL_CHECK_EQ(have, 3);
    FAIL() << "no exception";
  } catch (const BrokenPromise& broken) {
    const std::string text = broken.what();
    EXPECT_NE(text.find("check_test.cpp:"), std::string::npos) << text;
    EXPECT_NE(text.find("have == 3 (2 against 3)"), std::string::npos) << text;
  }
}

TEST(Check, TextOfTheCallerIsFormattedIn) {
  try {
    SHOAL_CHECK(1 > 2, "rank {}", 7);
    FAIL() << "no exception";
  } catch (const BrokenPromise& broken) {
    EXPECT_NE(std::string(broken.what()).find("1 > 2 rank 7"), std::string::npos) << broken.what();
  }
}

TEST(Check, PassingChecksDoNothingAndEvaluateOnce) {
  int calls = 0;
  SHOAL_CHECK_LE(++calls, 1);
  SHOAL_CHECK_LT(0, calls);
  SHOAL_CHECK_GE(calls, 1);
  EXPECT_EQ(calls, 1);
}

}  // namespace shoal
