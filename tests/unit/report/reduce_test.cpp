#include "report/reduce.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

namespace shoal::report {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(Reduce, APointForEachStepWhereThereAreFew) {
  EXPECT_EQ(steps_a_point(0, 100), 1u);
  EXPECT_EQ(steps_a_point(1, 100), 1u);
  EXPECT_EQ(steps_a_point(100, 100), 1u);
  EXPECT_EQ(steps_a_point(101, 100), 2u);
  EXPECT_EQ(steps_a_point(1'000'000, 10'000), 100u);
  EXPECT_THAT(reduce({1, 2, 3}, 1).mean, ElementsAre(1, 2, 3));
}

TEST(Reduce, NoExtremeIsLost) {
  const Points points = reduce({1, 9, 2, -4, 5, 6, 7}, 3);
  EXPECT_THAT(points.mean, ElementsAre(4, 7.0f / 3, 7));
  EXPECT_THAT(points.least, ElementsAre(1, -4, 7));
  EXPECT_THAT(points.most, ElementsAre(9, 6, 7));
}

TEST(Reduce, WhatIsNotFiniteCountsInNothing) {
  const Points points = reduce({kNaN, 2, INFINITY, kNaN}, 2);
  EXPECT_EQ(points.mean[0], 2);
  EXPECT_TRUE(std::isnan(points.mean[1]));
  EXPECT_TRUE(std::isnan(points.least[1]));
  EXPECT_THAT(reduce({}, 3).mean, IsEmpty());
}

TEST(Base64, IsOfLittleEndianNumbers) {
  EXPECT_EQ(base64_of(std::vector<float>{}), "");
  EXPECT_EQ(base64_of(std::vector<float>{1.0f}), "AACAPw==");
  EXPECT_EQ(base64_of(std::vector<float>{1.0f, -2.0f, 0.5f}), "AACAPwAAAMAAAAA/");
  EXPECT_EQ(base64_of(std::vector<double>{1.0}), "AAAAAAAA8D8=");
}

TEST(Median, LeavesOutWhatIsNotFinite) {
  EXPECT_EQ(median_of({}), 0);
  EXPECT_EQ(median_of({kNaN, 5, 1, 3}), 3);
}

TEST(Outliers, AreFarAboveWhatIsUsualAroundThem) {
  std::vector<double> values;
  for (int i = 0; i < 500; ++i) values.push_back(5 - i * 0.005 + (i % 7) * 0.01);
  size_t found = 0;
  EXPECT_THAT(outliers(values, 10, found), IsEmpty()) << "a loss that falls has none";
  values[30] = 20;
  values[450] = 14;
  values[460] = kNaN;
  values[470] = 0.01;  // far below is no harm
  const std::vector<Outlier> far = outliers(values, 10, found);
  ASSERT_EQ(far.size(), 2u);
  EXPECT_EQ(found, 2u);
  EXPECT_EQ(far[0].at, 30u);
  EXPECT_EQ(far[0].value, 20);
  EXPECT_NEAR(far[0].usual, 4.5, 0.3);
  EXPECT_EQ(far[1].at, 450u);
  ASSERT_EQ(outliers(values, 1, found).size(), 1u);
  EXPECT_EQ(found, 2u);
  EXPECT_EQ(outliers(values, 1, found)[0].at, 450u) << "the farthest for what is usual there";
}

TEST(Outliers, FewStepsSayNothing) {
  size_t found = 7;
  EXPECT_THAT(outliers({}, 10, found), IsEmpty());
  EXPECT_EQ(found, 0u);
  EXPECT_THAT(outliers({1, 1, 1, 100}, 10, found), IsEmpty());
  EXPECT_THAT(outliers(std::vector<double>(400, 2.0), 10, found), IsEmpty());
  EXPECT_THAT(outliers(std::vector<double>(400, kNaN), 10, found), IsEmpty());
}

}  // namespace
}  // namespace shoal::report
