#include "forecast/timeline.h"

#include <gtest/gtest.h>

namespace shoal::forecast {
namespace {

double of(const Timeline::Split& split, Purpose purpose) { return split.of[static_cast<size_t>(purpose)]; }

TEST(Timeline, RunsTheOperationsOfALaneOneAfterTheOther) {
  Timeline timeline(0);
  const auto first = timeline.add(Lane::compute, Purpose::compute, 2);
  const auto second = timeline.add(Lane::compute, Purpose::compute, 3);
  timeline.run();
  EXPECT_DOUBLE_EQ(timeline.end_of(first), 2);
  EXPECT_DOUBLE_EQ(timeline.begin_of(second), 2);
  EXPECT_DOUBLE_EQ(timeline.end_of(second), 5);
}

TEST(Timeline, BooksAWaitToWhatIsWaitedFor) {
  Timeline timeline(0);
  const auto gather = timeline.add(Lane::gathers, Purpose::gather, 4, {}, Path::inside);
  timeline.add(Lane::compute, Purpose::compute, 1, {gather});
  timeline.run();
  const Timeline::Split split = timeline.split(0, 5);
  EXPECT_DOUBLE_EQ(of(split, Purpose::gather), 4);
  EXPECT_DOUBLE_EQ(of(split, Purpose::compute), 1);
  EXPECT_DOUBLE_EQ(split.total(), 5);
}

TEST(Timeline, BooksAWaitToTheOperationAtTheEndOfTheChain) {
  Timeline timeline(0);
  const auto copy = timeline.add(Lane::weights_in, Purpose::offload, 3, {}, Path::bus);
  const auto gather = timeline.add(Lane::gathers, Purpose::gather, 1, {copy}, Path::inside);
  timeline.add(Lane::compute, Purpose::compute, 1, {gather});
  timeline.run();
  const Timeline::Split split = timeline.split(0, 5);
  EXPECT_DOUBLE_EQ(of(split, Purpose::offload), 3);
  EXPECT_DOUBLE_EQ(of(split, Purpose::gather), 1);
}

TEST(Timeline, OperationsOfOnePathShareIt) {
  Timeline timeline(0);
  const auto gather = timeline.add(Lane::gathers, Purpose::gather, 2, {}, Path::between);
  const auto reduction = timeline.add(Lane::reductions, Purpose::reduction, 2, {}, Path::between);
  const auto other = timeline.add(Lane::weights_in, Purpose::offload, 2, {}, Path::bus);
  timeline.run();
  EXPECT_NEAR(timeline.end_of(gather), 4, 1e-9);
  EXPECT_NEAR(timeline.end_of(reduction), 4, 1e-9);
  EXPECT_NEAR(timeline.end_of(other), 2, 1e-9) << "another path";
}

TEST(Timeline, ComputingIsSlowerBesideACollective) {
  Timeline timeline(0.25);
  timeline.add(Lane::gathers, Purpose::gather, 4, {}, Path::inside);
  const auto computed = timeline.add(Lane::compute, Purpose::compute, 6);
  timeline.run();
  EXPECT_NEAR(timeline.end_of(computed), 7, 1e-9) << "3 of 6 in 4 s, the rest alone";
  const Timeline::Split split = timeline.split(0, 7);
  EXPECT_NEAR(of(split, Purpose::compute), 6, 1e-9);
  EXPECT_NEAR(of(split, Purpose::gather), 1, 1e-9);
}

TEST(Timeline, OperationsWithoutLengthTakeNoTime) {
  Timeline timeline(0.1);
  auto last = timeline.add(Lane::compute, Purpose::compute, 0);
  for (int i = 0; i < 5; ++i)
    last = timeline.add(i % 2 == 0 ? Lane::gathers : Lane::compute, Purpose::gather, 0, {last});
  timeline.run();
  EXPECT_DOUBLE_EQ(timeline.end_of(last), 0);
  EXPECT_DOUBLE_EQ(timeline.split(0, 1).total(), 0);
}

TEST(Timeline, RefusesToWaitForWhatComesLater) {
  Timeline timeline(0);
  EXPECT_ANY_THROW(timeline.add(Lane::compute, Purpose::compute, 1, {3}));
  EXPECT_ANY_THROW(timeline.add(Lane::compute, Purpose::compute, -1));
}

}  // namespace
}  // namespace shoal::forecast
